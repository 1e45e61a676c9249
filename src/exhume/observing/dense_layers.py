"""Layers of a module that read the inputs, or features that training did not change, at both ends of training."""

from collections.abc import Callable

import torch
from torch import nn

from exhume.layer_states import LayerStates, changed, with_bias
from exhume.observing.seen_layers import ORDER, seen_layers


def dense_layers(trained: nn.Module, started: nn.Module, input_shape: tuple[int, ...]) -> tuple[LayerStates, ...]:
    """The layers that a silent-units attack can be made on, those that read the inputs first."""
    modules = dict(started.named_modules())
    found = []
    for seen in seen_layers(trained, input_shape, unchanged(trained, started)):
        before = modules[seen.name]
        ends = [with_bias(layer.weight, layer.bias) for layer in (before, seen.layer)]
        if seen.why_not is None and not torch.equal(ends[0], ends[1]):
            found.append(
                changed(
                    *ends,
                    bias=seen.layer.bias is not None,
                    name=seen.name,
                    leak=seen.leak or 0.0,
                    reads=seen.reads,
                    reading=seen.reading,
                )
            )
    return in_order(found)


def in_order(found: list[LayerStates]) -> tuple[LayerStates, ...]:
    """Those that read the inputs first; otherwise as they were."""
    return tuple(sorted(found, key=lambda layer: ORDER.index(layer.reads)))


def unchanged(trained: nn.Module, started: nn.Module) -> Callable[[str], bool]:
    """Whether training left a module of this name alone."""
    now, modules = dict(trained.named_modules()), dict(started.named_modules())

    def still(name: str) -> bool:
        before = modules[name].state_dict()
        return all(torch.equal(value, before[key]) for key, value in now[name].state_dict().items())

    return still
