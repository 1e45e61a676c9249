"""From a place in the span to its dual: the direction that the units silent there do not see.

For a sample z_i the silent rows of Y are blind to q_i, up to the few that fired in between. Two ways to use that:

*weighted*: min_q Σ_k w_k |y_k·q| subject to z·q = 1, by iteratively reweighted least squares, where w_k grows with how
far below zero unit k is. Robust to a place that is only roughly right: this is the step of the search.

*annealed*: a mixture. An entry c_k = y_k·q is zero (a spike of width ε) with a probability that the depth of unit k
tells, and Gaussian otherwise (the slab). Expectation: the posterior γ_k that unit k is silent. Maximisation: q from the
rows weighted by γ, and z from a logistic regression of γ on the units' own weights (`placing.py`). ε falls from the
size of the entries to that of rounding, and q becomes exact.

The constraint z·q = 1 keeps a dual from falling back to one that was found before: z is orthogonal to all of those.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.silent.grams import solve_positive, weighted_grams
from exhume.attacks.silent.placing import logistic_step
from exhume.attacks.silent.span import Span

GLIMPSE = 0.3  # depth above zero at which a unit still has some weight: places are off by about that much
SLAB = 1.5  # mean square of the entries of units that fire, where all have mean square 1 and two thirds fire
SHIFT, WIDTH = 0.15, 0.13  # logistic curve of "zero" against depth, read off samples placed by least squares
WIDEST, NARROWS = 0.5, 0.75  # ε at the beginning, and its ratio from step to step
SINGLE_UNTIL = 0.02  # ε down to which single precision will do
MOVES_UNTIL = 0.01  # ε down to which places move as well


def unit_rows(values: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    return values / values.norm(dim=1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)


def weighted_duals(span: Span, points: Float[Tensor, "m r"], rounds: int = 3) -> Float[Tensor, "m r"]:
    """One dual for each place, by reweighting."""
    trust = ((span.depth(points) + GLIMPSE) / (1 + GLIMPSE)).clamp_(0, 1).square_()
    weights, duals = trust, points
    for turn in range(rounds):
        duals = _solved(span, weights, points)
        if turn + 1 < rounds:
            size = span.columns(duals).abs_()
            weights = trust / (size + 0.3 * size.median(dim=1, keepdim=True).values.clamp_min(1e-7))
    return duals


@dataclass(frozen=True, eq=False, repr=False)
class Annealed:
    duals: Float[Tensor, "m r"]
    points: Float[Tensor, "m r"]


def annealed_duals(
    span: Span,
    points: Float[Tensor, "m r"],
    duals: Float[Tensor, "m r"],
    basis: Float[Tensor, "r f"],
    ridge: float,
    widest: float = WIDEST,
) -> Annealed:
    """Duals and places together, down to rounding. Places stay in the span of `basis`, with a prior of size `ridge`.

    `widest`: ε to begin with; below `MOVES_UNTIL` for places that are known, which then stay.
    """
    single = span.to(torch.float32)
    steps = math.ceil(math.log(1e-6 / widest) / math.log(NARROWS))
    # logistic regression has a scale of its own: at a median preactivation of 3 most units are decided
    size = (points @ span.ends[-1].T).abs().median(dim=1, keepdim=True).values
    inside = 3 * (points / size.clamp_min(torch.finfo(points.dtype).tiny)) @ basis
    ends = tuple(end @ basis for end in span.ends)
    single_ends = tuple(end.float() for end in ends)
    width = widest
    for _ in range(steps):
        width *= NARROWS
        coarse = width > SINGLE_UNTIL
        seen, maps = (single, single_ends) if coarse else (span, ends)
        kind = seen.rows.dtype
        inside, duals = inside.to(kind), duals.to(kind)
        points = inside @ basis.T.to(kind)
        spike = (2 * seen.tolerance(duals)).clamp_min(width)
        silent = posterior(zero_odds(seen, points), seen.columns(duals), spike)
        duals = _solved(seen, silent, points)
        if width > MOVES_UNTIL:
            inside = logistic_step(maps, inside, silent, ridge)
        elif bool((spike > width).all()):
            break
    return Annealed(duals.to(span.rows), span.facing((inside @ basis.T.to(inside)).to(span.rows)))


def zero_odds(span: Span, points: Float[Tensor, "m r"]) -> Float[Tensor, "m u"]:
    """The logarithm of the odds that a unit never fired, by its depth alone."""
    return (span.depth(points) - SHIFT) / WIDTH


def posterior(
    odds: Float[Tensor, "m u"], entries: Float[Tensor, "m u"], spike: Float[Tensor, "m 1"]
) -> Float[Tensor, "m u"]:
    """γ: the probability that a unit never fired, given its depth and its entry."""
    zero = torch.nn.functional.logsigmoid(odds).clamp_min(-12) - 0.5 * (entries / spike).square() - torch.log(spike)
    fires = torch.nn.functional.logsigmoid(-odds).clamp_min(-7) - 0.5 * entries.square() / SLAB
    return torch.sigmoid(zero - fires + 0.5 * math.log(SLAB))


def _solved(span: Span, weights: Float[Tensor, "m u"], points: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    """argmin Σ_k w_k (y_k·q)² subject to z·q = 1, at norm 1."""
    total = weights.sum(dim=1, keepdim=True)
    weights = torch.where(total > 0, weights / total.clamp_min(torch.finfo(weights.dtype).tiny), 1 / span.h)
    grams = weighted_grams(span.rows, weights)
    return unit_rows(solve_positive(grams, points, 30 * torch.finfo(grams.dtype).eps))
