"""What one iteration of the split solver costs, in operations and bytes, against m, d and rows.

m candidates in R^d on `rows` rows of V. An iteration has three parts: `fit` (forward pass, F Fᵀ, residual), `linearise`
(backward pass, D Dᵀ) and `move` (the split step; its inner solve takes `products` products on rows_c = min(rows, 5 m²)
rows, inside a span of s = min(m, d) dimensions). They are made of terms, each with a rate of its own:

    reads             4 rows d            bytes of V, once a pass
    passes            2 m rows d          operations of a pass
    products          2 m² rows, and 4 m s rows_c for each inner product
    fit_elements      m rows              φ, residuals
    slope_elements    m rows              φ'
    inner_elements    m rows_c            for each inner product
    small             m³ + m² d           eigenvalues, inverses, the basis of S: on every rank alike
    calls             1
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.optimize import nnls

from exhume.attacks.single_layer.split_step import CURVATURE_ROWS

PARTS = ("fit", "linearise", "move")


@dataclass(frozen=True)
class Terms:
    """Counts of each term; or, for `Costs`, seconds for one unit of each."""

    reads: float = 0.0
    passes: float = 0.0
    products: float = 0.0
    fit_elements: float = 0.0
    slope_elements: float = 0.0
    inner_elements: float = 0.0
    small: float = 0.0
    calls: float = 0.0

    def __add__(self, other: "Terms") -> "Terms":
        return Terms(*(mine + theirs for mine, theirs in zip(self.numbers(), other.numbers(), strict=True)))

    def numbers(self) -> list[float]:
        return [getattr(self, field.name) for field in fields(Terms)]


@dataclass(frozen=True)
class Shape:
    """One iteration. `ranks` share the rows."""

    m: int
    d: int
    rows: int
    products: float = 30.0
    ranks: int = 1

    @property
    def span(self) -> int:
        return min(self.m, self.d)

    def part(self, name: str) -> Terms:
        """Of each rank."""
        rows, m = self.rows / self.ranks, self.m
        a_pass = {"reads": 4 * rows * self.d, "passes": 2 * m * rows * self.d, "products": 2 * m**2 * rows}
        if name == "fit":
            return Terms(**a_pass, fit_elements=m * rows, small=m**3, calls=1)
        if name == "linearise":
            return Terms(**a_pass, slope_elements=m * rows, calls=1)
        inner = self.products * m * min(self.rows, CURVATURE_ROWS * m**2) / self.ranks
        return Terms(products=4 * self.span * inner, inner_elements=inner, small=m**3 + m**2 * self.d, calls=1)

    def whole(self) -> Terms:
        return self.part("fit") + self.part("linearise") + self.part("move")

    @property
    def summed_bytes(self) -> float:
        """What is summed over all ranks: two m × m in float64, m × d there and back, m × s for each inner product."""
        return 16.0 * self.m**2 + 8.0 * self.m * self.d + 4.0 * self.products * self.m * self.span

    @property
    def row_bytes(self) -> float:
        """V in float32, on each rank."""
        return 4.0 * self.rows * self.d / self.ranks

    @property
    def matrix_bytes(self) -> float:
        """One m × rows matrix in float32, on each rank."""
        return 4.0 * self.m * self.rows / self.ranks


class Costs(Terms):
    def seconds(self, counts: Terms) -> float:
        return sum(cost * count for cost, count in zip(self.numbers(), counts.numbers(), strict=True))

    def total(self, shape: Shape) -> float:
        return self.seconds(shape.whole())


def fit_costs(counts: Sequence[Terms], seconds: Sequence[float]) -> Costs:
    """Least squares of relative errors, no cost below zero. Operations cost the same in passes and in products."""
    table = np.array([one.numbers() for one in counts]) / np.array(seconds)[:, None]
    table[:, 1] += table[:, 2]
    table = np.delete(table, 2, axis=1)
    scale = table.max(axis=0)
    found, _ = nnls(table / scale, np.ones(len(seconds)))
    costs = (found / scale).tolist()
    each = [*costs[:2], costs[1], *costs[2:]]
    return Costs(**{field.name: cost for field, cost in zip(fields(Terms), each, strict=True)})


@dataclass(frozen=True)
class Memory:
    """How many m × rows matrices are alive at the peak besides V, and what is needed whatever the size."""

    matrices: float
    constant: float

    def total(self, shape: Shape) -> float:
        return shape.row_bytes + self.matrices * shape.matrix_bytes + self.constant


def fit_memory(shapes: Sequence[Shape], peak_bytes: Sequence[float]) -> Memory:
    beyond = [peak - shape.row_bytes for shape, peak in zip(shapes, peak_bytes, strict=True)]
    matrices, constant = np.polyfit([shape.matrix_bytes for shape in shapes], beyond, 1)
    return Memory(float(matrices), float(constant))


def fit_power(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """a, b of value = a size^b."""
    slope, intercept = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(np.exp(intercept)), float(slope)
