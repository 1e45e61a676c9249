"""The features of a network from its source.

Building a network runs code. Factories that installed packages declare are trusted; any other one is imported only if
the caller names it: a file that somebody sends must not be able to choose what runs.

    [project.entry-points."exhume.networks"]
    my-network = "my_package.my_network:blank_network"

Such a factory takes a `seed` beside its other arguments, and draws its weights from it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume import seeds
from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures, averaged_features, axis_groups, penultimate_features
from exhume.features.network_source import NetworkSource
from exhume.networks.head import find_head, head_tensors, name_of, with_bias
from exhume.networks.loading import load_factory, load_state, prepare_for_attack

GROUP = "exhume.networks"
EARLIER = {"exhume.networks.resnet:blank_resnet": "resnet", "exhume.networks.vit:blank_vision_transformer": "vit"}
"""Factories as the files of the first version name them, and the names of their entry points."""


@cache
def trusted() -> Mapping[str, EntryPoint]:
    """The factories that may run, whoever asks for them, by the names that files have for them."""
    points = entry_points(group=GROUP)
    named = {point.name: point for point in points}
    earlier = {factory: named[name] for factory, name in EARLIER.items() if name in named}
    return {**{point.value: point for point in points}, **earlier}


def network_features(source: NetworkSource, allowed: str | None = None, place: str = "the weights") -> ModuleFeatures:
    """Features of the published network, or averaged with those of the initial one.

    `allowed` is the factory that the caller lets run besides trusted ones; `place` names the weights in complaints.
    """
    if source.factory not in trusted() and source.factory != allowed:
        given = "no --model" if allowed is None else f"--model {allowed}"
        raise ExhumeError(
            f"expected --model {source.factory}, because the features in {place} are made by that code, found {given}; "
            "give it if you trust the code"
        )
    features = _features_of(source, source.state, place)
    if source.initial_state is not None:
        features = averaged_features(_features_of(source, source.initial_state, place), features)
    return replace(features, groups=_groups(source, features.p), source=source)


def drawn_head(source: NetworkSource, seed: int) -> Float[Tensor, "k p"]:
    """The head that the network of a source starts with, if its weights are drawn from this seed.

    Runs the factory again: only ever called for a source whose features were made, and so allowed.
    """
    with torch.random.fork_rng(devices=[]):  # torch's own layers draw from the global stream
        torch.manual_seed(seeds.derive(seed, "network"))
        model = _build(source, {"seed": seed} if source.factory in trusted() else {})
    head = find_head(model, source.head)
    return with_bias(head.weight, head.bias)


def body_state(model: nn.Module, head: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict without the tensors of the head: what a source keeps."""
    of_head = head_tensors(model, head)
    return {name: tensor.detach().clone() for name, tensor in state.items() if name not in of_head}


def _build(source: NetworkSource, more: Mapping[str, Any]) -> nn.Module:
    point = trusted().get(source.factory)
    if point is not None:
        point.load()  # from where it is installed: `load_factory` looks in the working folder first
    spec = source.factory if point is None else point.value
    return load_factory(spec, arguments={**source.arguments, **more})


def _features_of(source: NetworkSource, state: Mapping[str, Tensor], place: str) -> ModuleFeatures:
    """Of the network in evaluation mode, with what that does to dropout and batch norm. Only for allowed code."""
    with torch.random.fork_rng(devices=[]):  # a factory may draw weights, which are replaced
        model = _build(source, {}).to(source.dtype)
    note = prepare_for_attack(model)
    head = find_head(model, source.head)
    load_state(model, state, place, without=head_tensors(model, name_of(model, head)))
    return replace(penultimate_features(model, source.head, source.input_shape, bias=source.bias), note=note)


def _groups(source: NetworkSource, p: int) -> Tensor | None:
    if source.group_axis is None or source.feature_shape is None:
        return None
    if math.prod(source.feature_shape) != p - source.bias:
        raise UsageError(
            f"expected features of shape {list(source.feature_shape)}, found {p - source.bias} that the head reads"
        )
    return axis_groups(source.feature_shape, source.group_axis, source.bias)
