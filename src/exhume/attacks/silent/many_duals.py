"""Duals of many places at once, where there is no memory for the Gram matrices of all of them.

The mixture of `duals.py`: for each place the posterior γ that a unit never fired, then q from M q = z with
M = Σ_k γ_k y_k y_kᵀ. M is never made. A product with it costs two passes over Y, for all places together in two matrix
products, and as ε falls slowly the last q is close: a few conjugate gradients per step do. For r = 500 this is r / 24
times less work than Gram matrices. Places stay where they are, or move by logistic regression, as in `duals.py`: that
needs Gram matrices of the f dimensions that are left, so it is for the last samples.

What has many zeros then is refitted to them in double precision, where Gram matrices pay: few are left.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.silent.duals import MOVES_UNTIL, WIDEST, Annealed, decided, posterior, unit_rows, zero_odds
from exhume.attacks.silent.evidence import zeros_within
from exhume.attacks.silent.placing import Placing, logistic_step
from exhume.attacks.silent.span import BATCH_NUMBERS, Span

NARROWS = 0.87  # ε from step to step: 0.75 leaves a tenth fewer exact (CIFAR-10, n = 500)
SINGLE_UNTIL = 0.004  # ε down to which single precision will do
PRODUCTS, FIRST_PRODUCTS = 12, 30
DAMPING = 1e-6


def many_duals(span: Span, points: Float[Tensor, "m r"], placing: Placing | None = None) -> Annealed:
    """Duals and places, of those places at which more units are blind than could be chosen.

    `placing`: places move, inside its basis."""
    single, places = span.to(torch.float32), points.float()
    moving = None if placing is None else placing.to(torch.float32)
    coarse = _annealed(single, places, _reweighted(single, places), WIDEST, SINGLE_UNTIL, moving)
    duals, points = coarse.duals.to(points), span.facing(coarse.points.to(points))
    chosen = zeros_within(span, duals, SINGLE_UNTIL).sum(dim=1) > span.r
    return _annealed(span, points[chosen], duals[chosen], SINGLE_UNTIL, 0.0)


def _reweighted(span: Span, points: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    """A first dual for each place, as `weighted_duals` makes them."""
    likely = torch.sigmoid(zero_odds(span, points))
    weights, duals = likely, points
    for _ in range(3):
        duals = _solved(span, weights, points, duals, FIRST_PRODUCTS)
        size = span.columns(duals).abs_()
        weights = likely / (size + 0.3 * size.median(dim=1, keepdim=True).values.clamp_min(1e-7))
    return duals


def _annealed(
    span: Span,
    points: Float[Tensor, "m r"],
    duals: Float[Tensor, "m r"],
    width: float,
    until: float,
    placing: Placing | None = None,
) -> Annealed:
    """ε from `width` down to `until`, or to rounding."""
    if placing is not None:
        points = decided(span, points)
        ends = tuple(end @ placing.basis for end in span.ends)
    odds = zero_odds(span, points)
    while width > until:
        width *= NARROWS
        spike = (2 * span.tolerance(duals)).clamp_min(width)
        silent = posterior(odds, span.columns(duals), spike)
        duals = _solved(span, silent, points, duals, PRODUCTS)
        if placing is not None and width > MOVES_UNTIL:
            points = _moved(placing, ends, points, silent)
            odds = zero_odds(span, points)
        elif bool((spike > width).all()):
            break
    return Annealed(duals, points)


def _moved(
    placing: Placing, ends: tuple[Float[Tensor, "u f"], ...], points: Float[Tensor, "m r"], silent: Float[Tensor, "m u"]
) -> Float[Tensor, "m r"]:
    inside = points @ placing.basis
    size = max(1, BATCH_NUMBERS // (inside.shape[1] * (inside.shape[1] + len(ends[0]))))
    parts = zip(inside.split(size), silent.split(size), strict=True)
    return torch.cat([logistic_step(ends, part, quiet, placing.ridge) for part, quiet in parts]) @ placing.basis.T


def _solved(
    span: Span,
    weights: Float[Tensor, "m u"],
    points: Float[Tensor, "m r"],
    begin: Float[Tensor, "m r"],
    products: int,
) -> Float[Tensor, "m r"]:
    """Conjugate gradients for argmin Σ_k w_k (y_k·q)² subject to z·q = 1, at norm 1, from other duals."""
    weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)

    def product(rows: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return (span.columns(rows) * weights) @ span.rows + DAMPING * rows

    seen = product(begin)
    scale = _dots(begin, points) / _dots(begin, seen).clamp_min(1e-30)
    duals, left = begin * scale, points - seen * scale
    direction, energy = left, _dots(left, left)
    for _ in range(products):
        seen = product(direction)
        step = energy / _dots(direction, seen).clamp_min(1e-30)
        duals, left = duals + step * direction, left - step * seen
        before, energy = energy, _dots(left, left)
        direction = left + energy / before.clamp_min(1e-30) * direction
    return unit_rows(duals)


def _dots(first: Float[Tensor, "m r"], second: Float[Tensor, "m r"]) -> Float[Tensor, "m 1"]:
    return (first * second).sum(dim=1, keepdim=True)
