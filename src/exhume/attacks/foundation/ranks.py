"""The processes that share one attack: each holds some rows of V, and what is a sum over rows is summed over all.

Everything else (candidates, coefficients, m × m systems, random numbers) is the same on every rank and computed by each
of them from the same numbers. One process alone is the usual case: nothing is then sent, copied or waited for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.features.share import Share

FAILED_KEY = "failed"
LAST_WORD = timedelta(seconds=10)  # how long a rank that fails waits to learn whether another one has said why

T = TypeVar("T")


class RanksLost(ExhumeError):
    """Another rank has stopped: nothing can be summed any more."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """This process among those that share an attack. `beside`: how many of them are on this machine.

    Every method but `speaks` has to be called by all ranks, in the same order.
    """

    rank: int = 0
    size: int = 1
    beside: int = 1
    store: Any = None

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and talks."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        return Share(self.rank, self.size)

    @property
    def lost(self) -> str:
        return f"expected {self.size} ranks, found that one has stopped; start again with the same command to continue"

    def sum(self, values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The sum over all ranks; the values may be overwritten."""
        return values if self.size == 1 else self._reduce(values.contiguous(), dist.ReduceOp.SUM)

    def total(self, value: float) -> float:
        if self.size == 1:
            return value
        return float(self._reduce(torch.tensor([value], dtype=torch.float64), dist.ReduceOp.SUM))

    def largest(self, value: float) -> float:
        if self.size == 1:
            return value
        return float(self._reduce(torch.tensor([value], dtype=torch.float64), dist.ReduceOp.MAX))

    def any(self, flag: bool) -> bool:
        return self.largest(float(flag)) > 0

    def same(self, values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """What the first rank has: numbers that all ranks computed, without the rounding of different machines."""
        if self.size == 1:
            return values
        values = values.clone(memory_format=torch.contiguous_format)
        self._together(lambda: dist.broadcast(values, src=0))
        return values

    def from_first(self, thing: T) -> T:
        """What the first rank has, anything at all."""
        if self.size == 1:
            return thing
        things = [thing]
        self._together(lambda: dist.broadcast_object_list(things, src=0, device=torch.device("cpu")))
        return things[0]

    def speaks(self) -> bool:
        """Whether a rank that fails is to say why: the first that fails is, because the others fail for its sake."""
        if self.size == 1:
            return True
        try:
            self.store.set_timeout(LAST_WORD)
            return bool(self.store.add(FAILED_KEY, 1) == 1)
        except RuntimeError:  # the store is gone with its machine
            return self.first

    def _reduce(self, values: Float[Tensor, "..."], how: Any) -> Float[Tensor, "..."]:
        self._together(lambda: dist.all_reduce(values, how))
        return values

    def _together(self, work: Callable[[], object]) -> None:
        try:
            work()
        except RuntimeError as problem:  # a closed connection, or nobody there for too long
            raise RanksLost(self.lost) from problem


ALONE = Ranks()
