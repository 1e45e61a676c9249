"""Two samples on a circle: where the width bound can be held against an exhaustive search.

ReLU, rows uniform on the circle of radius R = √2, samples at a right angle. With K the kernel E[σ(w·x) σ(w·y)], or its
mean over the m rows that were drawn, candidates with the best coefficients leave

    L(α) = αᵀ S α,      S = K_xx − K_xc K_cc⁻¹ K_cx,

and both candidates are angles: all pairs of a grid are looked at. L = 0 does not depend on the scale of α, so |α₁| +
|α₂| = 1, and each is at least LEAST. The infimum over α is that of a parabola. With K itself the infimum over all
pairs that are not close is η. With drawn rows the bound fails only where some pair that is not close has L_m = 0, and
then L_m < η/4 at the grid points around it, if the grid is fine enough: so what is counted contains every failure, for
all coefficients, trained ones among them.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume_papers.studies.width_bound import WidthBound

SAMPLES = (0.0, math.pi / 2)
CLOSENESS, LEAST = 0.5, 0.4
ROW_NORM = math.sqrt(2)
GRID, FINE = 120, 720
BLOCK = 1 << 15


@dataclass(frozen=True)
class CircleTrial:
    width: int
    seed: int

    def run(self) -> float:
        """The least L_m of candidates that are not close, on the grid, over all coefficients."""
        stream = torch.Generator().manual_seed(self.seed)
        angles, gram = _angles(GRID), torch.zeros(GRID + 2, GRID + 2, dtype=torch.float64)
        points = torch.stack([angles.cos(), angles.sin()])
        for first in range(0, self.width, BLOCK):
            turns = torch.rand(min(BLOCK, self.width - first), generator=stream, dtype=torch.float64)
            rows = ROW_NORM * torch.stack([(2 * math.pi * turns).cos(), (2 * math.pi * turns).sin()], dim=1)
            features = (rows @ points).clamp_min(0)
            gram += features.T @ features
        return least_loss(gram / self.width)


def separation() -> float:
    """η, on a grid of half a degree."""
    return least_loss(arc_cosine(_angles(FINE)))


def width_bound(failure_rate: float = 0.05) -> int:
    return WidthBound(2, 2, separation(), 1.0, ROW_NORM, 1.0, ROW_NORM, failure_rate).width


def arc_cosine(angles: Float[Tensor, " q"]) -> Float[Tensor, "q q"]:
    """E[σ(w·x) σ(w·y)] = (R² / 4π) (sin φ + (π − φ) cos φ) for rows of norm R, uniform on the circle."""
    apart = (angles[:, None] - angles).abs() % (2 * math.pi)
    apart = torch.minimum(apart, 2 * math.pi - apart)
    return ROW_NORM**2 / (4 * math.pi) * (apart.sin() + (math.pi - apart) * apart.cos())


def least_loss(kernel: Float[Tensor, "q q"]) -> float:
    """The infimum over pairs of the grid that are not close, and over coefficients. The first two points are the
    samples."""
    count = len(kernel) - 2
    one, two = torch.triu_indices(count, count, 1)
    far = ~_close(_angles(count)[2:], one, two)
    one, two = one[far] + 2, two[far] + 2
    cross = torch.stack([kernel[:2][:, one], kernel[:2][:, two]])  # candidate, sample, pair
    a, b, c = kernel[one, one], kernel[one, two], kernel[two, two]
    # a ridge at rounding size: with few rows, candidates may have the same features, or none
    ridge = 1e-12 * (1 + a + c)
    a, c = a + ridge, c + ridge
    determinant = a * c - b * b
    left = (
        kernel[:2, :2, None]
        - (
            c * _outer(cross[0], cross[0])
            + a * _outer(cross[1], cross[1])
            - b * (_outer(cross[0], cross[1]) + _outer(cross[1], cross[0]))
        )
        / determinant
    )
    return min(float(_parabola(left, sign).min()) for sign in (1.0, -1.0))


def _parabola(left: Float[Tensor, "2 2 q"], sign: float) -> Float[Tensor, " q"]:
    """The least αᵀSα for α = (t, ± (1 − t)) with t from LEAST to 1 − LEAST."""
    one, both, two = left[0, 0], sign * left[0, 1], left[1, 1]
    curvature = (one - 2 * both + two).clamp_min(1e-300)
    t = ((two - both) / curvature).clamp(LEAST, 1 - LEAST)
    return t * t * one + 2 * t * (1 - t) * both + (1 - t) ** 2 * two


def _outer(left: Float[Tensor, "2 q"], right: Float[Tensor, "2 q"]) -> Float[Tensor, "2 2 q"]:
    return left[:, None] * right[None]


def _angles(count: int) -> Float[Tensor, " q"]:
    grid = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
    return torch.cat([torch.tensor(SAMPLES, dtype=torch.float64), grid])


def _close(grid: Float[Tensor, " q"], one: Tensor, two: Tensor) -> Bool[Tensor, " r"]:
    """Whether both samples have a candidate of their own within CLOSENESS, up to sign."""
    near = []
    for sample in SAMPLES:
        apart = (grid - sample).abs() % math.pi
        near.append(2 * (torch.minimum(apart, math.pi - apart) / 2).sin() < CLOSENESS)
    return (near[0][one] & near[1][two]) | (near[0][two] & near[1][one])
