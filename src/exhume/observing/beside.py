"""What a training keeps beside the weights: the optimiser's state, and a moving average of the weights.

Both are states of the model's layers that tell of the data without the start of the training: the weights minus their
moving average are a sum of steps, and the optimiser's buffers are averages of gradients.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from exhume.errors import ExhumeError
from exhume.layer_states import LayerStates
from exhume.networks.loading import load_state
from exhume.observing.dense_layers import dense_layers, in_order
from exhume.observing.known_start import KnownStart
from exhume.observing.optimiser_states import BUFFERS, Kept, kept_of, optimiser_layer
from exhume.observing.seen_layers import seen_layers

_WHAT = "reads the inputs, frozen features, or few large patches"
NAMED = 4  # parameters that a note names


@dataclass(frozen=True, eq=False, repr=False)
class Beside:
    """`optimiser` is a state dict of torch's optimisers, `average` one of the model. `notes` say what is not used."""

    optimiser: Mapping[str, Any] | None = None
    average: Mapping[str, Tensor] | None = None
    notes: tuple[str, ...] = ()


def layers_beside(
    model: nn.Module, beside: Beside, input_shape: tuple[int, ...]
) -> tuple[tuple[LayerStates, ...], tuple[str, ...]]:
    """Targets of the silent-units attack, the strong ones first, and a sentence for each part that gave none."""
    found: list[LayerStates] = []
    notes = list(beside.notes)
    for what, part, read in (
        ("moving average", beside.average, _of_average),
        ("optimiser's state", beside.optimiser, _of_optimiser),
    ):
        if part is None:
            continue
        try:
            layers, said = read(model, part, input_shape)
        except ExhumeError as problem:
            notes.append(f"The {what} was not used: {problem}.")
            continue
        found += layers
        notes += said
        if not layers:
            notes.append(f"The {what} was not used: it tells of no ReLU layer that {_WHAT}.")
    return tuple(found), tuple(notes)


def _of_average(
    model: nn.Module, average: Mapping[str, Tensor], input_shape: tuple[int, ...]
) -> tuple[tuple[LayerStates, ...], tuple[str, ...]]:
    """An average may be of parameters only; whatever else the model has is as published."""
    other = copy.deepcopy(model)
    load_state(other, {**model.state_dict(), **average}, "the moving average")
    now = dict(model.named_parameters())
    if all(torch.equal(value, now[name]) for name, value in other.named_parameters()):
        raise ExhumeError("it equals the weights, so their difference tells nothing")
    whole = KnownStart(other, frozenset())
    return tuple(replace(layer, source="average") for layer in dense_layers(model, whole, input_shape)), ()


def _of_optimiser(
    model: nn.Module, state: Mapping[str, Any], input_shape: tuple[int, ...]
) -> tuple[tuple[LayerStates, ...], tuple[str, ...]]:
    """Modules of which the optimiser keeps nothing were frozen, unless they have statistics that move without it.

    Where nobody can tell whether it keeps something of a module, the module does not count as frozen."""
    found, modules = kept_of(model, state), dict(model.named_modules())
    kept, unassigned = found.values, set(found.unassigned)
    if not any(name in values for values in kept.values() for name in BUFFERS):
        raise ExhumeError(f"expected {' or '.join(BUFFERS)} of the model's parameters in it, found none")

    def own(name: str) -> list[str]:
        return [f"{name}.{key}" if name else key for key, _ in modules[name].named_parameters(recurse=False)]

    def still(name: str) -> bool:
        touched = any(kept.get(key) or key in unassigned for key in own(name))
        return not touched and not list(modules[name].buffers(recurse=False))

    layers = [
        seen.named(optimiser_layer(model, state, seen.name))
        for seen in seen_layers(model, input_shape, still)
        if seen.why_not is None
        and kept.get(f"{seen.name}.weight" if seen.name else "weight")
        and unassigned.isdisjoint(own(seen.name))
    ]
    return in_order(layers), _left_open(found)


def _left_open(found: Kept) -> tuple[str, ...]:
    if not found.unassigned:
        return ()
    named = ", ".join(repr(name) for name in found.unassigned[:NAMED])
    more = len(found.unassigned) - NAMED
    return (
        f"The optimiser's state is not assigned to {named}{f' and {more} more' if more > 0 else ''}: the model and the "
        "optimiser have different numbers of parameters of these shapes. None of them counts as frozen.",
    )
