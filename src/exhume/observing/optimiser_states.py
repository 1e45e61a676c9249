"""Averages of gradients that an optimiser keeps beside the weights, as targets of the silent-units attack.

SGD's `momentum_buffer`, and `exp_avg` of Adam and its kin, are linear averages of gradients: rows of a layer's buffer
are combinations of the layer's inputs, also where the weights themselves have no such form. torch numbers parameters
in the order in which they were handed to the optimiser. That is mostly the order in which the model lists them. Where
some went to groups of their own, say biases without weight decay, the k-th parameter of a shape in one order is the
k-th of that shape in the other.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from exhume.errors import ExhumeError
from exhume.layer_states import LayerStates, Source, averaged
from exhume.networks.head import with_bias

BUFFERS: dict[str, Source] = {"momentum_buffer": "momentum", "exp_avg": "adam"}


@dataclass(frozen=True, eq=False)
class Kept:
    """What an optimiser keeps of each parameter, under the parameter's name; nothing of those it was not handed.

    `unassigned`: parameters of which the optimiser may keep something, only nobody can tell what."""

    values: Mapping[str, Mapping[str, Any]]
    unassigned: tuple[str, ...] = ()


def optimiser_layer(model: nn.Module, state: Mapping[str, Any], name: str) -> LayerStates:
    """The layer of that name, with the average of its gradients in an optimiser's state dict."""
    layer = dict(model.named_modules()).get(name)
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        raise ExhumeError(
            f"expected a linear layer or a convolution {name!r} in the model, found {type(layer).__name__}"
        )
    kept = kept_of(model, state).values
    weight, source = _buffer(kept, f"{name}.weight" if name else "weight")
    bias = None
    if layer.bias is not None:
        bias, _ = _buffer(kept, f"{name}.bias" if name else "bias")
    ends = with_bias(layer.weight, layer.bias)
    return averaged(with_bias(weight, bias), ends, bias=bias is not None, name=name, source=source)


def kept_of(model: nn.Module, state: Mapping[str, Any]) -> Kept:
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    listed = [number for group in state["param_groups"] for number in group["params"]]
    kept = {number: state["state"].get(number, {}) for number in listed}
    names = [name for group in state["param_groups"] for name in group.get("param_names", ())]
    pairs = list(zip(names or shapes, listed, strict=False))
    whole = len(listed) == len(names or shapes)
    if whole and all(name in shapes and _shape(kept[number]) in (None, shapes[name]) for name, number in pairs):
        return Kept({name: kept[number] for name, number in pairs})
    return _by_shape(shapes, kept)


def _by_shape(shapes: Mapping[str, torch.Size], kept: Mapping[int, Mapping[str, Any]]) -> Kept:
    """Only shapes that the model and the optimiser have equally often. Of a shape that the optimiser does not have,
    it keeps nothing; the others stay open."""
    theirs: dict[torch.Size, list[int]] = defaultdict(list)
    for number, values in kept.items():
        shape = _shape(values)
        if shape is not None:
            theirs[shape].append(number)
    found: dict[str, Mapping[str, Any]] = {}
    unassigned: set[str] = set()
    for shape, numbers in theirs.items():
        ours = [name for name, other in shapes.items() if other == shape]
        if len(ours) == len(numbers):
            found |= {name: kept[number] for name, number in zip(ours, numbers, strict=True)}
        else:
            unassigned |= set(ours)
    return Kept(found, tuple(name for name in shapes if name in unassigned))


def _shape(kept: Mapping[str, Any]) -> torch.Size | None:
    return next((kept[name].shape for name in BUFFERS if isinstance(kept.get(name), Tensor)), None)


def _buffer(kept: Mapping[str, Mapping[str, Any]], key: str) -> tuple[Tensor, Source]:
    values = kept.get(key, {})
    for name, source in BUFFERS.items():
        if isinstance(values.get(name), Tensor):
            return values[name], source
    raise ExhumeError(
        f"expected {' or '.join(BUFFERS)} of {key!r} in the optimiser's state, found {', '.join(values) or 'nothing'}"
    )
