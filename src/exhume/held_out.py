"""What an attack kept out of its own fit, as that attack recorded it.

Only the attack knows which weights it fitted, so it writes the record, and whoever shows evidence reads it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class HeldOut:
    """`what`: in words, several of them ("weights of the last layer"). `places`: which ones, counted among those that
    the attack was given. `looked_at`: what the attack learned from them all the same, "" for nothing. `along`: pairs of
    an iteration and the loss on them then; nothing in the attack has read these losses."""

    what: str
    places: Int[Tensor, " h"]
    looked_at: str = ""
    along: tuple[tuple[int, float], ...] = ()

    def __repr__(self) -> str:
        return f"HeldOut({len(self.places):,} {self.what})"

    def with_losses(self, along: tuple[tuple[int, float], ...]) -> "HeldOut":
        return replace(self, along=along)

    def described(self) -> dict[str, str | list[list[float]]]:
        """All but the places, for a file."""
        return {"what": self.what, "looked_at": self.looked_at, "along": [list(pair) for pair in self.along]}


def read_held_out(kept: Mapping[str, object], places: Tensor) -> HeldOut:
    """Raises TypeError or ValueError for what `described` does not write."""
    what, looked_at, along = kept["what"], kept["looked_at"], kept["along"]
    if not isinstance(what, str) or not isinstance(looked_at, str) or not isinstance(along, list):
        raise TypeError("held_out")
    pairs = tuple((iteration, float(loss)) for iteration, loss in along)
    if not all(type(iteration) is int and math.isfinite(loss) for iteration, loss in pairs):
        raise ValueError("held_out")
    if places.ndim != 1 or places.dtype != torch.int64:
        raise TypeError("held_out")
    return HeldOut(what, places, looked_at, pairs)
