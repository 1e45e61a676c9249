"""A combination a A + b B of two matrices of rows, made block by block: a layer between two moments of training."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.features.rows import PlainRows, Rows


@dataclass(frozen=True, eq=False)
class MixedRows(PlainRows):
    """Rows a u_k + b w_k, in the precision of the first. Both stay where they are."""

    first: Rows
    share: float
    second: Rows
    second_share: float

    def __post_init__(self) -> None:
        shapes = [[rows.p, rows.d] for rows in (self.first, self.second)]
        if shapes[0] != shapes[1]:
            raise ExhumeError(f"expected two layers of the same shape, found {shapes[0]} and {shapes[1]}")

    @property
    def p(self) -> int:
        return self.first.p

    @property
    def d(self) -> int:
        return self.first.d

    @property
    def block_rows(self) -> int:
        return min(self.first.block_rows, self.second.block_rows)

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        values = self.first.block(start, stop)
        return (self.share * values).add_(self.second.block(start, stop).to(values), alpha=self.second_share)

    def part(self, start: int, stop: int) -> "MixedRows":
        first, second = self.first.part(start, stop), self.second.part(start, stop)
        return MixedRows(first, self.share, second, self.second_share)
