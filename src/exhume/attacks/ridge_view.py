"""A network whose features turn out to be φ(Wx + b), seen as such: for these there is an exact attack."""

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from exhume.features.module import ModuleFeatures, penultimate_features
from exhume.features.network import TRUSTED, built_network
from exhume.features.ridge import RidgeFeatures
from exhume.features.ridge_form import as_ridge
from exhume.features.rows import HeldRows
from exhume.observation import Observation

RIDGE_METHODS = ("auto", "split-newton", "heavy-ball")
"""Those that a network whose features are φ(Wx + b) can be attacked by, and should."""


def seen_as_ridge(observation: Observation) -> Observation:
    """The same weights over features φ(Wx + b), if that is what the network's are; otherwise the observation itself.

    Builds the network again, by code that was allowed when its features were made. The constant feature of a head's
    bias has no such form: that weight is left out. Not for averaged features, nor where the start is searched by seed.
    """
    features = observation.features
    source = features.source if isinstance(features, ModuleFeatures) else None
    if source is None or source.factory in TRUSTED or source.initial_state is not None:
        return observation
    assert isinstance(features, ModuleFeatures)
    if observation.knowledge.initial == "seed":
        return observation
    model, _ = built_network(source, source.state, "the weights")
    ridge = as_ridge(model, penultimate_features(model, source.head, source.input_shape))
    if ridge is None:
        return observation
    if features.chosen is None:
        kept = torch.arange(ridge.p)
        rows = ridge
    else:
        kept = (features.chosen < ridge.p).nonzero()[:, 0]
        rows = _some(ridge, features.chosen[kept])
    head = None if observation.head is None else observation.head[:, kept]
    return replace(observation, features=rows, weights=observation.weights[:, kept], head=head)


def _some(ridge: RidgeFeatures, chosen: Int[Tensor, " q"]) -> RidgeFeatures:
    assert isinstance(ridge.rows, HeldRows)
    bias = None if ridge.bias is None else ridge.bias[chosen]
    return replace(ridge, rows=HeldRows(ridge.rows.values[chosen]), bias=bias)
