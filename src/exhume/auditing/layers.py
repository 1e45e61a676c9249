"""Which layers of a model can give its training data away, and why.

Every step of gradient descent changes a linear layer by Σ_i e_i h_iᵀ, a combination of what the layer read on that
step: the inputs themselves for the first layer, features for any other. The head is what exhume attacks; what is said
of the other layers is why they are not out of danger.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Leak = Literal["attacked", "not attacked", "still"]
MOST_RANK_SIDE = 2048
"""Ranks are found from a square matrix of the inputs' side; larger ones would take minutes."""
SINGULAR = 1e-6  # of the largest eigenvalue of ΔᵀΔ: what rounding in single precision does not reach


@dataclass(frozen=True)
class LayerFact:
    """One block of parameters. `leak` is "still" for a layer that training did not change."""

    name: str
    kind: str
    parameters: int
    leak: Leak
    why: str


def facts_of_module(
    model: nn.Module,
    head: str,
    initial: Mapping[str, Tensor] | None,
    attacked: str,
    uses_first: bool = False,
    also: str | None = None,
) -> tuple[LayerFact, ...]:
    """One line a module with parameters of its own. `attacked` says what is known of the head.

    `uses_first`: attacks also use the change of the first layer; `also` names a layer that is attacked besides.
    """
    blocks = {
        name: layer for name, layer in model.named_modules() if next(layer.parameters(recurse=False), None) is not None
    }
    first = next((name for name, layer in blocks.items() if isinstance(layer, nn.Linear | _CONVOLUTIONS)), None)
    return tuple(
        LayerFact(
            name=name or type(model).__name__,
            kind=type(layer).__name__,
            parameters=sum(parameter.numel() for parameter in layer.parameters(recurse=False)),
            leak=_leak(name == head or used, moved := _moved(name, layer, initial)),
            why=attacked if name == head else _why(name, layer, first, initial, moved, used),
        )
        for name, layer in blocks.items()
        for used in [name == also or (uses_first and name == first)]
    )


def facts_of_tensors(tensors: Mapping[str, Tensor], head: str, attacked: str) -> tuple[LayerFact, ...]:
    """For a file without code: one line a tensor."""
    elsewhere = "No code was given for this tensor, so nothing is known of what it reads; not attacked here."
    return tuple(
        LayerFact(
            name=name,
            kind="x".join(map(str, tensor.shape)) or "scalar",
            parameters=tensor.numel(),
            leak="attacked" if name == head else "not attacked",
            why=attacked if name == head else elsewhere,
        )
        for name, tensor in tensors.items()
    )


_CONVOLUTIONS = nn.Conv1d | nn.Conv2d | nn.Conv3d


def _leak(is_attacked: bool, moved: bool | None) -> Leak:
    if is_attacked:
        return "attacked"
    return "still" if moved is False else "not attacked"


def _moved(name: str, layer: nn.Module, initial: Mapping[str, Tensor] | None) -> bool | None:
    """Whether training changed the layer; None where its start is not known."""
    if initial is None:
        return None
    own = {f"{name}.{key}" if name else key: value for key, value in layer.named_parameters(recurse=False)}
    if not all(key in initial and initial[key].shape == value.shape for key, value in own.items()):
        return None
    return not all(torch.equal(value.detach(), initial[key].to(value.dtype)) for key, value in own.items())


def _why(
    name: str,
    layer: nn.Module,
    first: str | None,
    initial: Mapping[str, Tensor] | None,
    moved: bool | None,
    used: bool,
) -> str:
    if moved is False:
        return "Did not change in training: by itself it says nothing of these data."
    end = "Attacked here." if used else "Not attacked here."
    if name == first:
        what = "patches of the inputs" if isinstance(layer, _CONVOLUTIONS) else "the inputs themselves"
        return f"Its change is a combination of {what}{_rank(name, layer, initial)}. {end}"
    if isinstance(layer, nn.Linear | _CONVOLUTIONS):
        return f"Its change is a combination of the features it reads: it leaks in the same way. {end}"
    if isinstance(layer, nn.Embedding):
        return "Rows that no training sample used did not move: it tells which were used. Not attacked here."
    return "Few numbers, each a sum over samples. Not attacked here."


def _rank(name: str, layer: nn.Module, initial: Mapping[str, Tensor] | None) -> str:
    """How many dimensions the change of a linear layer spans: those of the training data, no more."""
    key = f"{name}.weight" if name else "weight"
    if not isinstance(layer, nn.Linear) or initial is None or key not in initial:
        return ""
    if layer.in_features > MOST_RANK_SIDE or initial[key].shape != layer.weight.shape:
        return ""
    change = layer.weight.detach().double() - initial[key].double()
    values = torch.linalg.eigvalsh(change.T @ change)
    rank = int((values > SINGULAR * values[-1].clamp_min(1e-300)).sum())
    if rank >= min(change.shape):
        return ""
    return f", and it spans only {rank} of {layer.in_features} dimensions, in which all training inputs lie"
