"""Weights over features φ(Vx + b) that are known, as of random features or of a trained layer: no code is needed."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import activation as named_activation
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Knowledge, Observation


def observe_features(
    rows: Float[Tensor, "p d"],
    weights: Float[Tensor, "*k p"],
    activation: str,
    bias: Float[Tensor, " p"] | None = None,
    knowledge: Knowledge | None = None,
    trained: bool = False,
) -> Observation:
    """Weights θ of a model φ(Vx + b)·θ whose features V (and bias b) are known; one row of weights an output.

    `trained`: V is a layer that was trained too, and not fixed before.
    """
    require_floats(rows=rows, weights=weights, bias=bias)
    features = RidgeFeatures(HeldRows(rows), named_activation(activation), bias, trained)
    return Observation(features, torch.atleast_2d(weights), knowledge or Knowledge())


def require_floats(**tensors: Tensor | None) -> None:
    for name, values in tensors.items():
        if values is not None and not values.is_floating_point():
            kind = str(values.dtype).removeprefix("torch.")
            raise UsageError(f"expected {name} in floating point, found {kind}; convert them, e.g. with .float()")
