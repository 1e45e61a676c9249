"""What a method hands out while it works: its iterates, each with all that is needed to go on from it."""

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class State:
    """All that a method needs to go on from an iterate: tensors, and plain numbers."""

    tensors: dict[str, Tensor] = field(repr=False)
    numbers: dict[str, float]


@dataclass(frozen=True, eq=False)
class Step:
    """One iterate, and the state to go on from: its own, or that of the last point where going on is possible.

    `notes` go to the trace as columns.
    """

    iteration: int
    candidates: Float[Tensor, "m d"] = field(repr=False)
    loss: float
    state: State
    notes: dict[str, float] = field(default_factory=dict)
