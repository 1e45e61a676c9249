"""The samples that a set of duals stands for, with what is known of each: its evidence, and how exact its place is.

A place is only as good as the *other* duals, to all of which it is orthogonal. So duals that are not certain are left
out of every other sample's place, at the price of one fitted number each.

How exact it is shows in leaving out: all duals and places again without a fifth of the units, five times. The spread
of the five, as the jackknife has it, is the error to expect. To that comes what rounding may hide: a sample's part of
the change is C_i x̃_iᵀ, and a difference between samples that stays below the largest singular value of rounding,
relative to that part, leaves them one. Clusters of samples in a file with noise are blends, and must not pass for
samples.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.silent.evidence import CLEARLY, ZERO, DualEvidence, evidence, unlike_others
from exhume.attacks.silent.joint import orthogonal_to_others, places, polished, refitted
from exhume.attacks.silent.span import Span

FOLDS = 5
BROKEN = 0.2  # share of silent units without zeros that a certain dual may always have
MOST_OF_THEM = 0.9  # of the rank, below which nothing is called recovered
LEARNED_ALIKE = 20.0  # samples of a cluster pass for one at 0.012 to 0.022 of their norm, in float16 and bfloat16
LAST_OFF = 6.0  # times the rounding of the last coordinate; off by up to 4.9 times it
RESTED = 0.017  # of the units that fire at both ends: they may have rested in between


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """`points` are places at norm 1; `spread` is the expected distance of an input from the true one, over its norm."""

    duals: Float[Tensor, "m r"]
    points: Float[Tensor, "m r"]
    certain: Bool[Tensor, " m"]
    spread: Float[Tensor, " m"]


def samples_of(span: Span, duals: Float[Tensor, "m r"]) -> Samples:
    if not len(duals):
        none = duals.new_zeros(0)
        return Samples(duals, duals, none.bool(), none)
    duals, points = polished(span, duals)
    seen = evidence(span, duals, points)
    certain = seen.certain & ~_contradicted(span, seen, duals, points)
    certain[certain.clone()] = ~unlike_others(seen.silence[certain], BROKEN)
    if int(certain.sum()) < MOST_OF_THEM * span.r:  # places are too rough to judge by, whatever their spread
        return Samples(duals, points, certain, torch.full_like(points[:, 0], math.inf))
    points = _from_certain(span, duals, certain)
    whole = span.inputs(points)
    squares = torch.zeros(len(duals), dtype=whole.dtype, device=whole.device)
    for fold in range(FOLDS):
        left = span.without(torch.arange(span.h, device=whole.device) % FOLDS == fold)
        again = refitted(left, duals, points)
        squares += (span.inputs(_from_certain(left, again, certain)) - whole).square().sum(dim=1)
    variance = (FOLDS - 1) / FOLDS * squares / whole.square().sum(dim=1).clamp_min(torch.finfo(whole.dtype).tiny)
    return Samples(duals, points, certain, (variance + _hidden(span, duals, points).square()).sqrt())


def _contradicted(
    span: Span, seen: DualEvidence, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]
) -> Bool[Tensor, " m"]:
    """Zeros at units that fired. Where outputs are few, what units get from two samples is nearly proportional, and a
    combination of the two duals is zero at units that both fire, too."""
    fired = span.fires_throughout(points, CLEARLY)
    density = 2 * ZERO / math.sqrt(2 * math.pi)  # of Gaussian entries of mean square 1, times the width of a zero
    by_chance = density * span.tolerance(duals)[:, 0] * fired.sum(dim=1)
    expected = torch.maximum(by_chance + 1.5 * by_chance.sqrt(), RESTED * fired.sum(dim=1))
    return (seen.zeros & fired).sum(dim=1) > expected.clamp_min(2)


def _hidden(span: Span, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]) -> Float[Tensor, " m"]:
    """What rounding may hide of a sample at the place z_i, over its norm: what is alike, and its last coordinate.

    Alike: the edge of rounding over ||C_i|| ||x̃_i||, where C_i = Y q_i / z_i·q_i. Last: x_i = x̃_i,1:d / x̃_i,d+1, and an
    entry of x̃ is off by σ / √h.
    """
    fit = (duals * points).sum(dim=1).abs().clamp_min(torch.finfo(duals.dtype).tiny)
    extended = points @ span.unscale
    part = span.columns(duals).norm(dim=1) / fit * extended.norm(dim=1)
    alike = LEARNED_ALIKE * span.edge / part.clamp_min(torch.finfo(part.dtype).tiny)
    if not span.bias:
        return alike
    entry = span.edge / (span.h**0.5 + extended.shape[1] ** 0.5) / span.h**0.5
    last = extended[:, -1].abs().clamp_min(torch.finfo(part.dtype).tiny)
    return torch.maximum(alike, LAST_OFF * entry / last)


def _from_certain(span: Span, duals: Float[Tensor, "m r"], certain: Bool[Tensor, " m"]) -> Float[Tensor, "m r"]:
    """Places from the certain duals only; uncertain ones stand where all duals together put them."""
    points = span.facing(orthogonal_to_others(duals)[0])
    points[certain] = places(span, duals[certain])
    return points
