"""Candidates written in fewer or better coordinates: x = U z, with U (d × r) of orthonormal columns.

Every attack on features φ(Vx + b) then is the same attack on φ((V U) z + b): the rows are those of V U, the weights,
the bias, the norms (||z|| = ||x||) and the held-out rows are what they were. So a parametrisation is no method of its
own: it is put below any of them, and what they find is lifted by U. The width that is needed falls from about d n to
about r n.

What the attacker believes of the coordinates before any weight is seen may be kept beside them: z_j ~ N(0, 1 /
precision_j), independent. r = d with a precision is a soft prior, r < d without one a hard cut.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.features.rows import PlainRows, Rows

INDEPENDENT = 1e-6  # a column that the others leave less than this share of is a combination of them


@runtime_checkable
class Parametrisation(Protocol):
    """x = U z. A basis that is not kept as a matrix (a transform) implements the same two products."""

    @property
    def d(self) -> int: ...

    @property
    def r(self) -> int:
        """How many numbers a sample is left with."""
        ...

    def lift(self, coordinates: Float[Tensor, "m r"]) -> Float[Tensor, "m d"]:
        """x = U z, row by row."""
        ...

    def lower(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m r"]:
        """Uᵀ x, row by row: the coordinates of a candidate (of its projection), and V U for rows of V."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Subspace:
    """The parametrisation by a basis that is kept, d × r with orthonormal columns."""

    basis: Float[Tensor, "d r"]

    @classmethod
    def spanned_by(cls, columns: Float[Tensor, "d r"]) -> "Subspace":
        """The span of the columns, orthonormalised in float64; columns that depend on each other are refused."""
        d, r = columns.shape
        if not 1 <= r <= d:
            raise ExhumeError(f"expected from 1 to d = {d} columns of a basis, found {r}")
        exact = columns.double()
        norms = exact.norm(dim=0)
        if not torch.isfinite(norms).all() or bool((norms == 0).any()):
            raise ExhumeError("expected finite columns of a basis that are not zero, found others")
        factors = torch.linalg.qr(exact / norms)
        left = factors.R.diagonal().abs()
        if float(left.min()) < INDEPENDENT:
            raise ExhumeError(
                f"expected {r} independent columns of a basis, found {int((left < INDEPENDENT).sum())} that the others "
                "make up; leave them out"
            )
        return cls(factors.Q.to(columns.dtype))

    @property
    def d(self) -> int:
        return self.basis.shape[0]

    @property
    def r(self) -> int:
        return self.basis.shape[1]

    def lift(self, coordinates: Float[Tensor, "m r"]) -> Float[Tensor, "m d"]:
        return coordinates @ self.basis.to(coordinates).T

    def lower(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m r"]:
        return rows @ self.basis.to(rows)


@dataclass(frozen=True, eq=False)
class LoweredRows(PlainRows):
    """The rows of V U, made block by block from those of V, which may be anywhere. `hold` keeps the result."""

    rows: Rows
    parametrisation: Parametrisation
    dtype: torch.dtype = torch.float32

    @property
    def p(self) -> int:
        return self.rows.p

    @property
    def d(self) -> int:
        return self.parametrisation.r

    @property
    def block_rows(self) -> int:
        return self.rows.block_rows

    def block(self, start: int, stop: int) -> Float[Tensor, "rows r"]:
        return self.parametrisation.lower(self.rows.block(start, stop).to(self.dtype))

    def part(self, start: int, stop: int) -> "LoweredRows":
        return LoweredRows(self.rows.part(start, stop), self.parametrisation, self.dtype)
