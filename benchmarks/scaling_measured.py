"""What `scaling.py` measures, and keeps in a file."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from scaling_forecast import OVERSAMPLED
from scaling_model import Costs, Shape

ATTACK_DIM = 300


@dataclass(frozen=True)
class Point:
    """One iteration: CPU seconds of its parts and seconds on the clock, the best of several.

    `grown` is what the process grew by, in bytes.
    """

    m: int
    d: int
    rows: int
    products: float
    cpu: dict[str, float]
    wall: float
    grown: float
    summed_bytes: float

    @property
    def shape(self) -> Shape:
        return Shape(self.m, self.d, self.rows, self.products)


@dataclass(frozen=True)
class Attack:
    """A whole attack. `sweeps`: rows that were swept with m candidates, for each m."""

    n: int
    p: int
    iterations: int
    passes: float
    cpu: float
    error: float
    sweeps: list[tuple[int, float]]

    @property
    def full_iterations(self) -> float:
        """Its work in units of one iteration with 1.25 n candidates on all rows."""
        return sum(m * rows for m, rows in self.sweeps) / (2 * OVERSAMPLED * self.n * self.p)

    def predicted(self, costs: Costs, products: float) -> float:
        seconds = 0.0
        for m, swept in self.sweeps:
            rows = min(0.95 * self.p, math.ceil(5 * ATTACK_DIM * max(m, 8) / 1024) * 1024)
            seconds += costs.total(Shape(m, ATTACK_DIM, round(rows), products)) * swept / (2 * rows)
        return seconds


@dataclass(frozen=True)
class Measured:
    points: list[Point]
    larger: list[Point]
    alone: Point
    together: Point
    attacks: list[Attack]
    bandwidth: float
    double_flops: float

    @classmethod
    def load(cls, path: Path) -> "Measured":
        kept = json.loads(path.read_text())
        points, larger = ([Point(**one) for one in kept.pop(name)] for name in ("points", "larger"))
        attacks = [Attack(**one) for one in kept.pop("attacks")]
        alone, together = Point(**kept.pop("alone")), Point(**kept.pop("together"))
        return cls(points, larger, alone, together, attacks, **kept)
