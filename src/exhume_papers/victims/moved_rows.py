"""The rows of a trained first layer, W₁(T) = s W₁(0) + CᵀX, made block by block from what training kept."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from exhume.features.rows import PlainRows, Rows


@dataclass(frozen=True, eq=False, repr=False)
class MovedRows(PlainRows):
    """Rows s v_k + Σ_i C_ik x_i. They hold the training data: an observation gets them written out or held."""

    initial: Rows
    scale: float
    coefficients: Float[Tensor, "n p"]
    inputs: Float[Tensor, "n d"]

    @property
    def p(self) -> int:
        return self.initial.p

    @property
    def d(self) -> int:
        return self.initial.d

    @property
    def block_rows(self) -> int:
        return self.initial.block_rows

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        moved = self.coefficients[:, start:stop].T @ self.inputs
        return moved.add_(self.initial.block(start, stop).to(moved), alpha=self.scale)

    def part(self, start: int, stop: int) -> "MovedRows":
        return MovedRows(self.initial.part(start, stop), self.scale, self.coefficients[:, start:stop], self.inputs)

    def midpoint(self) -> "MovedRows":
        """(W₁(0) + W₁(T)) / 2: features there fit the change of the head better than those at either end."""
        return MovedRows(self.initial, (1 + self.scale) / 2, self.coefficients / 2, self.inputs)
