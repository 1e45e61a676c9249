"""Held-out weights: is this the training data, decided without the training data.

Each weight is an equation of its own, so some can be kept from the attack. Candidates that are the data predict them as
well as the others; candidates that merely fit do not. Two sets are kept: one that an attack may look at to choose
between its own results, and one that is used once, for the verdict.

*The error to expect of each candidate.* What the candidates leave unexplained is taken for noise of variance σ² on each
equation, in units of the weights' own mean square. `linearised.py` of each family follows it into every direction, and
adds the Newton step that is still to be made, which is large where an attack was stopped on its way. The confidence of
a candidate is 1 / (1 + ε_i² / 0.03²), ε_i the error to expect over its norm.

*σ²* is estimated with caution from the loss L on the fitted weights and the loss H on h unseen ones.
q = m (d − 1 + k) / (k p) is the share of the equations that the unknowns of m candidates with k coefficients use up:

    σ² (1 − q) = max( H h / χ²_h(1 %),  L / (1 − q) )

A few unseen weights may be well predicted by luck, hence the quantile; noise that was fitted leaves only 1 − q of
itself; and where q is large what is left is seldom pure noise, because wrong candidates hide among right ones, hence
the factor 1 − q on the left.

*The outcome* is `recovered` where every candidate is trusted and nothing is left to explain: L and H are at the
rounding of the weights; or, of a network whose features drifted in training, H is what noise would leave, and far below
what the least of the candidates explains, so that no sample of that size is missing. Features that stood still leave no
noise: there, what is left over may be a sample.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.special import chdtri
from torch import Tensor

from exhume import seeds
from exhume.attacks.foundation.projection import Projected, Projection, removal_costs
from exhume.errors import UsageError
from exhume.reconstruction import Certificate, Outcome

HELD_OUT_FRACTION = 0.05
MOST_HELD_OUT = 16_384  # more rows do not make a verdict more certain
TRUSTED_ERROR = 0.03  # expected error at which the confidence is 1/2
EXPLAINED = 1e-11  # a held-out loss below this, forty times what float32 mostly leaves, has room for no sample
ROUNDING_MARGIN = 2.0  # how far above what the rounding of the weights would leave it may be
LEAST_SPARE = 1e-3  # 1 - q where candidates have more numbers than there are equations
OFF_GRID = 0.01  # of a step: how far a value may be from a place of the grid
LUCK = 0.01  # how often a few unseen weights may be predicted so well by chance
NOISE_MARGIN = 3.0  # how far above what noise would leave the unseen loss may be
MISSING_MARGIN = 100.0  # how far below what the least candidate explains the unseen loss must be: none is missing
APART = 0.1  # of a candidate's norm: as far as what is called recovered may be off
CONFIDENT_BELOW = 0.1  # no candidate is trusted where more than this share of the unseen weights is unexplained


@dataclass(frozen=True)
class RowSplit:
    """Rows 0..used-1 are the attack's, the next `steering` choose between its results, the last are for the verdict."""

    used: int
    steering: int
    held_out: int


def split_rows(p: int, fraction: float = HELD_OUT_FRACTION) -> RowSplit:
    """Rows are exchangeable (i.i.d. for random features), so the last ones serve as well as any.

    >>> split_rows(6000), split_rows(10)
    (RowSplit(used=5700, steering=150, held_out=150), RowSplit(used=9, steering=0, held_out=1))
    """
    require_share(fraction)
    kept = 0 if fraction == 0 else min(max(1, round(fraction * p)), p - 1, 2 * MOST_HELD_OUT)
    return RowSplit(p - kept, kept // 2, kept - kept // 2)


@dataclass(frozen=True, eq=False, repr=False)
class PlaceSplit:
    """Places of a network's weights: the attack's, those that choose between its results, those of the verdict."""

    used: Int[Tensor, " u"]
    steering: Int[Tensor, " s"]
    held_out: Int[Tensor, " h"]


def split_places(count: int, fraction: float, seed: int) -> PlaceSplit:
    """Random places, because a network's are not exchangeable; at least one of each kind where there are three."""
    require_share(fraction)
    kept = min(max(2, round(fraction * count)), count - 1) if fraction > 0 and count > 2 else 0
    order = torch.randperm(count, generator=seeds.generator(seed, "held-out"))
    return PlaceSplit(order[kept:].sort().values, order[: kept // 2], order[kept // 2 : kept])


def require_share(fraction: float) -> None:
    if not 0 <= fraction < 1:
        raise UsageError(f"expected a held-out fraction from 0 to below 1, found {fraction}")


@dataclass(frozen=True)
class Unexplained:
    """What candidates leave of the weights: L, H, the number h of unseen equations, and q = m (d − 1 + k) / (k p)."""

    loss: float
    unseen_loss: float
    unseen: int
    q: float

    @property
    def noise(self) -> float:
        """A cautious estimate of σ², as if all that is left were noise on the equations."""
        by_luck = self.unseen / float(chdtri(self.unseen, 1 - LUCK))
        return max(self.unseen_loss * by_luck, self.loss / self._spare) / self._spare

    @property
    def like_noise(self) -> bool:
        """Whether unseen weights are left about as much as noise would make it: H / L ~ (1 + q) / (1 − q)."""
        return self.unseen_loss <= NOISE_MARGIN * self.loss * self.fitted

    @property
    def fitted(self) -> float:
        """(1 + q) / (1 − q): by how much noise that was fitted is missed by more on unseen weights."""
        return (1 + self.q) / self._spare

    @property
    def _spare(self) -> float:
        return max(1 - self.q, LEAST_SPARE)


def stand_alone(
    squares: Float[Tensor, " m"],
    fit: Projection,
    loss: Projected,
    again: Callable[[Int[Tensor, " few"]], tuple[Projection, Float[Tensor, " few"]]],
) -> Float[Tensor, " m"]:
    """What is called must stand without what is not known: candidates that may be far off are left out, the cheapest
    half of them at a time, and the others are judged `again` without them. The larger squares count."""
    squares, here = squares.clone(), fit
    kept, adrift = torch.arange(len(squares), device=squares.device), squares > APART**2
    while bool(adrift.any()) and not bool(adrift.all()):
        cheap = torch.where(adrift, removal_costs(here, loss).to(squares), torch.inf).argsort()
        stays = torch.ones_like(adrift)
        stays[cheap[: max(1, int(adrift.sum()) // 2)]] = False
        kept = kept[stays]
        here, without = again(kept)
        squares[kept], adrift = torch.maximum(squares[kept], without), without > APART**2
    return squares


def unjudged(m: int, held_out: int = 0) -> Certificate:
    """Without weights that the attack did not see, or where they are all zero, nothing is certain."""
    return Certificate(Outcome.NOT_CONVERGED, None, held_out, (0.0,) * m)


def verdict(
    squares: Float[Tensor, " m"],
    explained: Float[Tensor, " m"],
    left: Unexplained,
    held_out: int,
    weights: Float[Tensor, "k p"],
    drifted: bool = True,
) -> Certificate:
    """The certificate of candidates with these squared errors to expect, over their squared norms.

    `explained`: what the loss would rise by without each.
    """
    confidence = 1 / (1 + squares.cpu().nan_to_num(math.inf) / TRUSTED_ERROR**2)
    if left.unseen_loss > CONFIDENT_BELOW:
        confidence = torch.zeros_like(confidence)
    rounding = ROUNDING_MARGIN * rounding_noise(weights)
    at_floor = left.loss <= max(EXPLAINED, rounding) and left.unseen_loss <= max(EXPLAINED, rounding * left.fitted)
    complete = drifted and left.like_noise and left.unseen_loss * MISSING_MARGIN < float(explained.min())
    outcome = outcome_of(left, at_floor or complete, confidence)
    return Certificate(outcome, left.unseen_loss, held_out, tuple(confidence.tolist()))


def rounding_noise(weights: Float[Tensor, "k p"]) -> float:
    """The mean square of the rounding error that the published weights show, over their own: 0 for single precision.

    Weights that were stored in a shorter format betray it: another rounding to it leaves them unchanged, or they take
    few values (an integer grid; often each output has one of its own).
    """
    exact = weights.double()
    spacings = _spacings(exact)
    if any(spacings):
        return sum(spacing**2 for spacing in spacings) / len(spacings) / 12 / float(exact.square().mean())
    for kind, bits in ((torch.bfloat16, 8), (torch.float16, 11)):
        if torch.equal(weights.to(kind).double(), exact):
            return 2.0 ** (-2 * bits) / 3
    return 0.0


def _spacings(weights: Float[Tensor, "k p"]) -> tuple[float, ...]:
    """The step of each output's grid (0 for an output of zeros), or that of all of them; none where there is none."""
    found: list[float] = []
    for row in weights:
        spacing = _spacing(row) if torch.any(row) else 0.0
        if spacing is None:
            break
        found.append(spacing)
    if len(found) == len(weights):
        return tuple(found)
    together = _spacing(weights) if len(weights) > 1 else None  # in one row there may be too few numbers to tell
    return () if together is None else (together,)


def _spacing(values: Float[Tensor, "..."]) -> float | None:
    """The step of a grid of up to 256 values, where there are more numbers than that; None where there is no grid."""
    distinct = torch.unique(values)
    if not 1 < len(distinct) <= 256 < values.numel():
        return None
    step = float(distinct.diff().min())
    places = distinct / step
    return step if float((places - places.round()).abs().max()) < OFF_GRID else None


def outcome_of(left: Unexplained, explained: bool, confidence: Float[Tensor, " m"]) -> Outcome:
    trusted = confidence >= 0.5
    if explained and bool(trusted.all()):
        return Outcome.RECOVERED
    if bool(trusted.any()):
        return Outcome.PARTIAL
    # weights that were never used are explained by right candidates only, however roughly (features that drifted)
    refuted = left.loss < 0.25 * left.unseen_loss and left.unseen_loss > CONFIDENT_BELOW
    return Outcome.SPURIOUS if refuted else Outcome.NOT_CONVERGED
