"""Which layers of a model can give its training data away, why, and which of them an attack has read.

Every step of gradient descent changes a linear layer by Σ_i e_i h_iᵀ, a combination of what the layer read on that
step: the inputs themselves for the first layer, features for any other. That a layer was attacked is said of attacks
that ran, after they ran.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from exhume.attacks.foundation.spectrum import rounding, spectrum_of_change

Leak = Literal["attacked", "not attacked", "still"]
MOST_RANK_SIDE = 2048
"""Ranks are found from a square matrix of the smaller side; larger ones would take minutes."""


@dataclass(frozen=True)
class LayerFact:
    """One block of parameters. `still`: training did not change it. `place`: what attacks call it, besides its name."""

    name: str
    kind: str
    parameters: int
    why: str
    still: bool = False
    place: Literal["head", "first", "other"] = "other"


def listed(facts: Sequence[LayerFact], read: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """For the page. `read` has the layers that each attack has read which ran, by the name of its method: names of
    layers, or "head", "first" and "all"."""
    lines = []
    for fact in facts:
        known = {fact.name, fact.place, "all"}
        by = [method for method, layers in read.items() if known & set(layers)]
        leak: Leak = "attacked" if by else "still" if fact.still else "not attacked"
        end = f"Attacked here by {' and '.join(by)}." if by else "" if fact.still else "Not attacked here."
        why = f"{fact.why} {end}".strip()
        lines.append({"name": fact.name, "kind": fact.kind, "parameters": fact.parameters, "leak": leak, "why": why})
    return lines


def facts_of_module(
    model: nn.Module, head: str, initial: Mapping[str, Tensor] | None, of_head: str
) -> tuple[LayerFact, ...]:
    """One line a module with parameters of its own. `of_head` says what is known of the head."""
    blocks = {
        name: layer for name, layer in model.named_modules() if next(layer.parameters(recurse=False), None) is not None
    }
    first = next((name for name, layer in blocks.items() if isinstance(layer, nn.Linear | _CONVOLUTIONS)), None)
    return tuple(
        LayerFact(
            name=name or type(model).__name__,
            kind=type(layer).__name__,
            parameters=sum(parameter.numel() for parameter in layer.parameters(recurse=False)),
            why=of_head if name == head else _why(name, layer, first, initial, moved),
            still=moved is False and name != head,
            place="head" if name == head else "first" if name == first else "other",
        )
        for name, layer in blocks.items()
        for moved in [_moved(name, layer, initial)]
    )


def facts_of_tensors(tensors: Mapping[str, Tensor], head: str, of_head: str) -> tuple[LayerFact, ...]:
    """For a file without code: one line a tensor."""
    elsewhere = "No code was given for this tensor, so nothing is known of what it reads."
    return tuple(
        LayerFact(
            name=name,
            kind="x".join(map(str, tensor.shape)) or "scalar",
            parameters=tensor.numel(),
            why=of_head if name == head else elsewhere,
            place="head" if name == head else "other",
        )
        for name, tensor in tensors.items()
    )


_CONVOLUTIONS = nn.Conv1d | nn.Conv2d | nn.Conv3d


def _moved(name: str, layer: nn.Module, initial: Mapping[str, Tensor] | None) -> bool | None:
    """Whether training changed the layer; None where its start is not known."""
    if initial is None:
        return None
    own = {f"{name}.{key}" if name else key: value for key, value in layer.named_parameters(recurse=False)}
    if not all(key in initial and initial[key].shape == value.shape for key, value in own.items()):
        return None
    return not all(torch.equal(value.detach(), initial[key].to(value.dtype)) for key, value in own.items())


def _why(
    name: str, layer: nn.Module, first: str | None, initial: Mapping[str, Tensor] | None, moved: bool | None
) -> str:
    if moved is False:
        return "Did not change in training: by itself it says nothing of these data."
    if name == first:
        what = "patches of the inputs" if isinstance(layer, _CONVOLUTIONS) else "the inputs themselves"
        return f"By gradient descent, its change is a combination of {what}{_rank(name, layer, initial)}."
    if isinstance(layer, nn.Linear | _CONVOLUTIONS):
        return "By gradient descent, its change is a combination of the features it reads: it leaks in the same way."
    if isinstance(layer, nn.Embedding):
        return "Rows that no training sample used did not move: it tells which were used."
    return "Few numbers, each a sum over samples."


def _rank(name: str, layer: nn.Module, initial: Mapping[str, Tensor] | None) -> str:
    """How many dimensions the change of a linear layer spans: those of the training data, no more."""
    key = f"{name}.weight" if name else "weight"
    if not isinstance(layer, nn.Linear) or initial is None or key not in initial:
        return ""
    after, before = layer.weight.detach(), initial[key]
    if min(after.shape) > MOST_RANK_SIDE or before.shape != after.shape:
        return ""
    shown = spectrum_of_change(after.double(), before.to(after.device).double(), rounding(after))
    if not shown.exact:
        return ""
    return (
        f", and it spans only {shown.rank} of {layer.in_features} dimensions, in which all inputs lie that left a "
        "trace in it"
    )
