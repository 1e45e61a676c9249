"""Layers that read the inputs, or features that training did not change, at both ends of training."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from exhume.features.mixed_rows import MixedRows
from exhume.features.rows import Rows, blocks
from exhume.layer_states import FAINT, LayerStates, averaged, changed
from exhume.networks.head import with_bias
from exhume.observation import Observation
from exhume.observing.known_start import KnownStart
from exhume.observing.seen_layers import ORDER, seen_layers

MOST_NUMBERS = 50_000_000  # of one state of a layer that is made from its rows; four of that size are held in float64


def dense_layers(trained: nn.Module, start: KnownStart, input_shape: tuple[int, ...]) -> tuple[LayerStates, ...]:
    """The layers that a silent-units attack can be made on, those that read the inputs first."""
    modules = dict(start.module.named_modules())
    found = []
    for seen in seen_layers(trained, input_shape, unchanged(trained, start)):
        before = modules[seen.name]
        ends = [with_bias(layer.weight, layer.bias) for layer in (before, seen.layer)]
        if seen.why_not is None and not torch.equal(ends[0], ends[1]):
            found.append(seen.named(changed(*ends, bias=seen.layer.bias is not None, name=seen.name)))
    return in_order(found)


def resting_layers(trained: nn.Module, input_shape: tuple[int, ...]) -> tuple[LayerStates, ...]:
    """The same layers as they are, where L2 in the loss has made their weights averages of gradients."""
    found = []
    for seen in seen_layers(trained, input_shape):
        if seen.why_not is None:
            layer = with_bias(seen.layer.weight, seen.layer.bias)
            bias = seen.layer.bias is not None
            found.append(seen.named(averaged(layer, layer, bias=bias, name=seen.name, source="stationary")))
    return in_order(found)


def layers_of(observation: Observation) -> tuple[LayerStates, ...]:
    """Those that were observed, or the first layer of features φ(Vx) where its start is known."""
    if observation.layers:
        return observation.layers
    initial = observation.initial_rows
    if initial is None:
        return ()
    features = observation.ridge
    if features.activation.leak > FAINT or features.bias is not None or features.p * features.d > MOST_NUMBERS:
        return ()  # the start of the bias is not part of such an observation
    ends = _values(initial), _values(trained_rows(observation, initial))
    layer = changed(*ends, bias=False, name="first layer", leak=features.activation.leak)
    return (layer,)


def trained_rows(observation: Observation, initial: Rows) -> Rows:
    """The first layer at the end of training, of an observation that shows it there or halfway from its start."""
    shown = observation.ridge.rows
    return MixedRows(shown, 2.0, initial, -1.0) if observation.knowledge.initial_body else shown


def with_layers(observation: Observation) -> Observation:
    """The same observation, with the dense layers of a network that is known at both ends of its training."""
    ends = observation.features.networks
    if observation.layers or len(ends) < 2:
        return observation
    start = KnownStart(ends[0].model, frozenset())
    return replace(observation, layers=dense_layers(ends[-1].model, start, ends[-1].input_shape))


def in_order(found: list[LayerStates]) -> tuple[LayerStates, ...]:
    """Those that read the inputs first; otherwise as they were."""
    return tuple(sorted(found, key=lambda layer: ORDER.index(layer.reads)))


def unchanged(trained: nn.Module, start: KnownStart) -> Callable[[str], bool]:
    """Whether training is known to have left a module of this name alone."""
    now, modules = dict(trained.named_modules()), dict(start.module.named_modules())

    def still(name: str) -> bool:
        before = modules[name].state_dict()
        return start.knows(name) and all(
            torch.equal(value, before[key]) for key, value in now[name].state_dict().items()
        )

    return still


def _values(rows: Rows) -> Tensor:
    return torch.cat([rows.block(part.start, part.stop) for part in blocks(rows, rows.block_rows)])
