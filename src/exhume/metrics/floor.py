"""How well the true data explain an observation: no attack can be asked for more."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.observation import Observation


def floor_of(observation: Observation, inputs: Float[Tensor, "n d"]) -> float:
    """||W − AᵀΦ||² / ||W||² with the best A, where Φ are the features of the training data: Eq. 11 at the truth.

    The features that an attacker has are not those on the way of training, which the change of the head is a
    combination of; defences and an unknown start add to the difference. Two sweeps over the features, in float64.
    """
    weights = observation.weights.double()
    energy = float(weights.square().sum())
    if energy == 0:
        return 0.0
    gram = torch.zeros(len(inputs), len(inputs), dtype=torch.float64)
    products = torch.zeros(len(inputs), len(weights), dtype=torch.float64)
    for block, values in observation.features.feature_blocks(inputs):
        exact = values.double()
        gram += exact @ exact.T
        products += exact @ weights[:, block].T
    coefficients = torch.linalg.pinv(gram, rtol=1e-13, hermitian=True) @ products
    left = 0.0
    for block, values in observation.features.feature_blocks(inputs):
        left += float((weights[:, block] - coefficients.T @ values.double()).square().sum())
    return left / energy
