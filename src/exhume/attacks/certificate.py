"""Held-out weights: is this the training data, decided without the training data.

Each weight is an equation of its own, so some can be kept from the attack. Candidates that are the data predict them as
well as the others; candidates that merely fit do not. Two sets are kept: one that an attack may look at to choose
between its own results, and one that is used once, for the verdict.

*The error to expect of each candidate.* The held-out loss H is the mean square of what the candidates leave
unexplained, in units of the weights' own. If that were noise of variance H on each equation, the least-squares
candidates would scatter with covariance H M⁻¹ ⊗ I, where M is the curvature of the loss (`gauss_newton.py`), and
σ_i = sqrt(H [M⁻¹]_ii) would be the size of ||x̂_i − x_i|| / √d. It is large for a sample with a tiny coefficient, which
leaves hardly a trace in the weights, and for copies that share one sample's coefficient. What is left is seldom pure
noise where q = m d / (k p), the share of the equations that the unknowns use up, is large: wrong candidates then hide
among right ones. So H is divided by 1 − q. The confidence of a candidate is 1 / (1 + (σ_i / 0.03)²).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gauss_newton import metric
from exhume.attacks.span import Fit, SpanLoss
from exhume.errors import UsageError
from exhume.observation import Observation
from exhume.reconstruction import Certificate, Outcome

HELD_OUT_FRACTION = 0.05
MOST_HELD_OUT = 16_384  # more rows do not make a verdict more certain
TRUSTED_ERROR = 0.03  # expected error at which the confidence is 1/2
EXPLAINED = 1e-10  # a held-out loss below this leaves nothing to explain
ROUNDING_MARGIN = 30.0  # how far above the rounding of the weights it may be
LEAST_SPARE = 1e-3  # 1 - q where candidates have more numbers than there are equations
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
    if not 0 <= fraction < 1:
        raise UsageError(f"expected a held-out fraction from 0 to below 1, found {fraction}")
    kept = 0 if fraction == 0 else min(max(1, round(fraction * p)), p - 1, 2 * MOST_HELD_OUT)
    return RowSplit(p - kept, kept // 2, kept - kept // 2)


def loss_on(
    observation: Observation,
    start: int,
    count: int,
    candidates: Float[Tensor, "m d"],
    coefficients: Float[Tensor, "m k"],
) -> float | None:
    """||θ_h − αᵀF_h||² / ||θ_h||² on rows that the attack did not fit; None where there are none."""
    weights = observation.weights[:, start : start + count]
    if count == 0 or not torch.any(weights):
        return None
    features = observation.ridge.part(start, start + count)
    return SpanLoss(features, weights, candidates.dtype, candidates.device).predict_loss(candidates, coefficients)


def expected_errors(loss: SpanLoss, fit: Fit, unseen_loss: float) -> Float[Tensor, " m"]:
    """sqrt(H [M⁻¹]_ii / (1 − q)): the distance to the truth, over √d, that the unexplained part lets expect."""
    return scatter(metric(loss, fit), unseen_loss, fit.candidates.numel() / loss.equations)


def scatter(curvature: Float[Tensor, "m m"], unseen_loss: float, q: float) -> Float[Tensor, " m"]:
    """sqrt(H [M⁻¹]_ii / (1 − q)) for a curvature M, whatever features it belongs to."""
    scale = curvature.diagonal().clamp_min(torch.finfo(torch.float64).tiny).rsqrt()
    balanced = torch.linalg.inv(curvature * scale[:, None] * scale + 1e-12 * torch.eye(len(scale)).to(scale))
    spare = max(1 - q, LEAST_SPARE)
    return (unseen_loss / spare * balanced.diagonal().clamp_min(1.0)).sqrt() * scale


def certify(
    loss: SpanLoss, fit: Fit, unseen_loss: float | None, split: RowSplit, weights: Float[Tensor, "k p"]
) -> Certificate:
    """The outcome and each candidate's confidence, from the weights alone (`weights`: as they were published)."""
    if unseen_loss is None:
        return unjudged(len(fit.candidates), split.held_out)
    errors = expected_errors(loss, fit, unseen_loss)
    return verdict(errors, fit.loss, unseen_loss, split.held_out, weights)


def unjudged(m: int, held_out: int = 0) -> Certificate:
    """Without weights that the attack did not see, or where they are all zero, nothing is certain."""
    return Certificate(Outcome.NOT_CONVERGED, None, held_out, (0.0,) * m)


def verdict(
    errors: Float[Tensor, " m"], loss: float, unseen_loss: float, held_out: int, weights: Float[Tensor, "k p"]
) -> Certificate:
    """The certificate of candidates with these expected errors."""
    confidence = 1 / (1 + (errors.cpu() / TRUSTED_ERROR).square())
    if unseen_loss > CONFIDENT_BELOW:
        confidence = torch.zeros_like(confidence)
    explained = unseen_loss <= max(EXPLAINED, ROUNDING_MARGIN * rounding_noise(weights))
    outcome = _outcome(loss, unseen_loss, explained, confidence)
    return Certificate(outcome, unseen_loss, held_out, tuple(confidence.tolist()))


def rounding_noise(weights: Float[Tensor, "k p"]) -> float:
    """The mean square of the rounding error that the published weights show, over their own: 0 for single precision.

    Weights that were stored in a shorter format betray it: another rounding to it leaves them unchanged, or they take
    few values (an integer grid).
    """
    exact = weights.double()
    distinct = torch.unique(exact)
    if 1 < len(distinct) <= 256 < exact.numel():
        return float(distinct.diff().min()) ** 2 / 12 / float(exact.square().mean())
    for kind, bits in ((torch.bfloat16, 8), (torch.float16, 11)):
        if torch.equal(weights.to(kind).double(), exact):
            return 2.0 ** (-2 * bits) / 3
    return 0.0


def _outcome(loss: float, unseen_loss: float, explained: bool, confidence: Float[Tensor, " m"]) -> Outcome:
    trusted = confidence >= 0.5
    if explained and bool(trusted.all()):
        return Outcome.RECOVERED
    if bool(trusted.any()):
        return Outcome.PARTIAL
    return Outcome.SPURIOUS if loss < 0.25 * unseen_loss else Outcome.NOT_CONVERGED
