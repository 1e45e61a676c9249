"""Some of the rows of a matrix V: what remains of the features of a pruned model."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.features.rows import Rows, RowsOfOthers


@dataclass(frozen=True, eq=False, repr=False)
class SelectedRows(RowsOfOthers):
    """The rows `index` of other rows, in their order. They stay where they are and are picked out block by block."""

    index: Int[Tensor, " p"]

    def __post_init__(self) -> None:
        if len(self.index) == 0:
            return
        first, last = int(self.index[0]), int(self.index[-1])
        if first < 0 or last >= self.whole.p or not bool((self.index.diff() > 0).all()):
            raise ExhumeError(
                f"expected increasing numbers of rows from 0 to {self.whole.p - 1}, found {first} to {last} or repeats"
            )

    @property
    def p(self) -> int:
        return len(self.index)

    @property
    def chosen(self) -> Int[Tensor, " p"]:
        return self.index

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        """Reads the stretches of V that hold the rows asked for, each no longer than one of V's own blocks."""
        wanted = self.index[start:stop]
        picked = [self.whole.block(0, 0)]
        while len(wanted):
            first = int(wanted[0])
            reached = int(torch.searchsorted(wanted, first + self.whole.block_rows))
            stretch = self.whole.block(first, int(wanted[reached - 1]) + 1)
            picked.append(stretch[(wanted[:reached] - first).to(stretch.device)])
            wanted = wanted[reached:]
        return torch.cat(picked)

    def part(self, start: int, stop: int) -> "SelectedRows":
        return SelectedRows(self.whole, self.index[start:stop])


def selected(rows: Rows, kept: Int[Tensor, " kept"]) -> SelectedRows:
    """Some of them, which may be some of others already."""
    return SelectedRows(rows.whole, rows.index[kept]) if isinstance(rows, SelectedRows) else SelectedRows(rows, kept)
