"""A network whose features turn out to be φ(Wx + b), seen as such: for these there is an exact attack."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.features.ridge import RidgeFeatures
from exhume.features.ridge_form import as_ridge, halfway_ridge, some_ridge
from exhume.observation import Observation


def seen_as_ridge(observation: Observation) -> Observation:
    """The same weights over features φ(Wx + b), if that is what the network's are; otherwise the observation itself.

    The constant feature of a head's bias has no such form: that weight is kept beside the others. Where the initial
    network is known as well, W and b are taken halfway, and the first layer's change is there for the subspace. Not
    where the start is searched by seed.
    """
    features = observation.features
    if observation.knowledge.initial == "seed":
        return observation
    forms = [form for form in map(as_ridge, features.networks) if form is not None]
    if not forms or len(forms) < len(features.networks):
        return observation
    end, start = forms[-1].features, forms[0].features
    ridge = end if len(forms) == 1 else halfway_ridge(end, start)
    shows_start = len(forms) > 1 and not forms[-1].normed
    kept = torch.arange(ridge.p)
    output_bias = observation.weights[:, ridge.p] if features.constant and features.chosen is None else None
    if features.chosen is not None:
        kept = (features.chosen < ridge.p).nonzero()[:, 0]
        chosen = features.chosen[kept]
        ridge, start = some_ridge(ridge, chosen), some_ridge(start, chosen)
    return replace(
        observation,
        features=ridge,
        weights=observation.weights[:, kept],
        head=None if observation.head is None else observation.head[:, kept],
        initial_rows=start.rows if shows_start else None,
        initial_bias=_initial_bias(start, ridge) if shows_start else None,
        output_bias=output_bias,
    )


def _initial_bias(start: RidgeFeatures, shown: RidgeFeatures) -> Float[Tensor, " p"] | None:
    """That of the start where there is a bias at all; one that began at zero counts as one."""
    return torch.zeros_like(shown.bias) if start.bias is None and shown.bias is not None else start.bias
