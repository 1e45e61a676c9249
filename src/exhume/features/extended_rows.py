"""Rows (v_k, b_k): those of V with their bias as a last column, for inputs (x, 1)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.features.rows import PlainRows, Rows


@dataclass(frozen=True, eq=False, repr=False)
class ExtendedRows(PlainRows):
    """The rows (v_k, b_k), made block by block. With `constant` the row (0, ..., 0, 1) comes before them: a homogeneous
    φ makes 1 of it at (x, 1), the feature that belongs to the bias of a head."""

    rows: Rows
    bias: Float[Tensor, " p"]
    constant: bool = False

    @property
    def p(self) -> int:
        return self.rows.p + self.constant

    @property
    def d(self) -> int:
        return self.rows.d + 1

    @property
    def block_rows(self) -> int:
        return self.rows.block_rows

    def block(self, start: int, stop: int) -> Float[Tensor, "rows e"]:
        first, last = (max(place - self.constant, 0) for place in (start, stop))
        values = self.rows.block(first, last)
        extended = torch.cat([values, self.bias[first:last].to(values)[:, None]], dim=1)
        if not self.constant or start > 0 or stop == 0:
            return extended
        unit = torch.zeros_like(extended[:1]) if len(extended) else values.new_zeros(1, self.d)
        unit[0, -1] = 1
        return torch.cat([unit, extended])

    def part(self, start: int, stop: int) -> "ExtendedRows":
        first, last = (max(place - self.constant, 0) for place in (start, stop))
        constant = self.constant and start == 0 < stop
        return ExtendedRows(self.rows.part(first, last), self.bias[first:last], constant)
