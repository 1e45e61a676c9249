"""A network whose features turn out to be φ(Wx + b), seen as such: for these there is an exact attack."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from exhume.features.module import penultimate_features
from exhume.features.network import TRUSTED, NetworkSource, built_network
from exhume.features.ridge_form import RidgeForm, as_ridge, halfway_ridge, some_ridge
from exhume.observation import Observation


def seen_as_ridge(observation: Observation) -> Observation:
    """The same weights over features φ(Wx + b), if that is what the network's are; otherwise the observation itself.

    Builds the network again, by code that was allowed when its features were made. The constant feature of a head's
    bias has no such form: that weight is left out. Where the initial network is known as well, W and b are taken
    halfway, and the first layer's change is there for the subspace. Not where the start is searched by seed.
    """
    features = observation.features
    source = features.source
    if source is None or source.factory in TRUSTED or observation.knowledge.initial == "seed":
        return observation
    form = _ridge_at(source, source.state, "the weights")
    begun = None if source.initial_state is None else _ridge_at(source, source.initial_state, "the initial weights")
    if form is None or (source.initial_state is not None and begun is None):
        return observation
    ridge, start = form.features, None if begun is None else begun.features
    if start is not None:
        ridge = halfway_ridge(ridge, start)
    kept = torch.arange(ridge.p)
    if features.chosen is not None:
        kept = (features.chosen < ridge.p).nonzero()[:, 0]
        chosen = features.chosen[kept]
        ridge, start = some_ridge(ridge, chosen), None if start is None else some_ridge(start, chosen)
    head = None if observation.head is None else observation.head[:, kept]
    initial_rows = observation.initial_rows if start is None or form.normed else start.rows
    return replace(
        observation, features=ridge, weights=observation.weights[:, kept], head=head, initial_rows=initial_rows
    )


def _ridge_at(source: NetworkSource, state: Mapping[str, Tensor], what: str) -> RidgeForm | None:
    model, _ = built_network(source, state, what)
    return as_ridge(model, penultimate_features(model, source.head, source.input_shape))
