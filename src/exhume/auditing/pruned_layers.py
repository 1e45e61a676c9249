"""Layers of a model that is published without some of its units.

Pruning removes features of the head. Units of the layer that gives these features go with them; of any other layer the
same share of units goes, those with the smallest weights. An attacker sees which ones are missing.

An optimiser's state and a moving average lie beside the weights, and pruning leaves them whole, with the weights that
are read together with them. An attacker who has no weights of the units that went finds at most as much.
"""

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from exhume.defences.kinds import Defence, removed
from exhume.layer_states import LayerStates, Source

BESIDE: dict[Source, str] = {
    "average": "the moving average",
    "momentum": "the optimiser's state",
    "adam": "the optimiser's state",
    "optimiser": "the optimiser's state",
}


def pruned_layers(
    layers: tuple[LayerStates, ...],
    defences: tuple[Defence, ...],
    kept: Int[Tensor, " q"],
    features: int,
    in_front: str | None,
) -> tuple[tuple[LayerStates, ...], tuple[str, ...]]:
    """What is left of each layer, and a sentence per layer whose weights are all that is seen of it.

    `kept` are the features of the head that stay, and `in_front` is the name of the layer that gives them."""
    shares = [one.percent_removed for one in defences if one.percent_removed is not None]
    if not shares:
        return layers, ()
    found, notes = [], []
    for states in layers:
        if states.source in BESIDE:
            found.append(states)
            continue
        gives = states.name == in_front and features in (states.h, states.h + 1)  # one more for a bias
        units = kept[kept < states.h] if gives else _largest(states, shares)
        found.append(_with_units(states, units))
        uncounted = "" if gives else ", which outputs here do not show"
        notes.append(f"layer {states.name!r} without {states.h - len(units):,} of {states.h:,} units{uncounted}")
    return tuple(found), tuple(dict.fromkeys(notes))


def _largest(states: LayerStates, shares: list[float]) -> Int[Tensor, " q"]:
    order = torch.argsort(states.ends[-1][:, : states.d].double().norm(dim=1), stable=True)
    for share in shares:
        order = order[removed(share, len(order)) :]
    return order.sort().values


def _with_units(states: LayerStates, units: Int[Tensor, " q"]) -> LayerStates:
    return replace(
        states,
        target=states.target[units],
        ends=tuple(end[units] for end in states.ends),
        start=None if states.start is None else states.start[units],
    )
