"""What a method hands out while it works: its iterates, each with all that is needed to go on from it."""

from dataclasses import dataclass, field
from operator import attrgetter

import torch
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

    `notes` go to the trace as columns. `facts` of the last one are further keys of the summary.
    """

    iteration: int
    candidates: Float[Tensor, "m d"] = field(repr=False)
    loss: float
    state: State
    notes: dict[str, float] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)


class Lasting:
    """What of a search outlives an interruption: attributes by their names, or by paths such as "growth.pace.damping".

    Numbers come back as the type that the attribute has before, tensors on the device of the search. One that is None
    is left out, and is None again.

    >>> class Search:
    ...     unit, best = 3, float("inf")
    >>> Lasting("unit", least="best").save(Search()).numbers
    {'unit': 3, 'least': inf}
    """

    def __init__(self, *names: str, **paths: str) -> None:
        self.paths = {name: name for name in names} | paths

    def under(self, attribute: str) -> dict[str, str]:
        """The same of something that a search has as an attribute."""
        return {name: f"{attribute}.{path}" for name, path in self.paths.items()}

    def save(self, search: object) -> State:
        values = {name: attrgetter(path)(search) for name, path in self.paths.items()}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        return State(tensors, {name: v for name, v in values.items() if v is not None and name not in tensors})

    def restore(self, search: object, state: State, device: torch.device) -> None:
        for name, path in self.paths.items():
            holder, _, attribute = path.rpartition(".")
            owner = attrgetter(holder)(search) if holder else search
            before = getattr(owner, attribute)
            if before is None or isinstance(before, Tensor):
                tensor = state.tensors.get(name) if before is None else state.tensors[name]
                setattr(owner, attribute, None if tensor is None else tensor.to(device))
            else:
                setattr(owner, attribute, type(before)(state.numbers[name]))
