"""Held-out weights: is this the training data, decided without the training data.

Each weight is an equation of its own, so some can be kept from the attack. Candidates that are the data predict them
as well as the others; candidates that merely fit do not. This certifies the function, not every row: a sample with a
very small coefficient leaves hardly a trace in the weights, seen or unseen.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.span import SpanLoss
from exhume.errors import UsageError
from exhume.observation import Observation
from exhume.reconstruction import Certificate, Outcome

HELD_OUT_FRACTION = 0.05
# 1 − R² on held-out weights. Genuine recoveries end below 1e-6, spurious fits above 0.05 (see docs/method.md).
RECOVERED_BELOW = 1e-5
PARTIAL_BELOW = 0.1


@dataclass(frozen=True)
class RowSplit:
    """Rows 0..used-1 are the attack's; the rest is for the verdict alone."""

    used: int
    held_out: int


def split_rows(p: int, fraction: float = HELD_OUT_FRACTION) -> RowSplit:
    """Rows are exchangeable (i.i.d. for random features), so the last ones serve as well as any.

    >>> split_rows(6000), split_rows(10), split_rows(1)
    (RowSplit(used=5700, held_out=300), RowSplit(used=9, held_out=1), RowSplit(used=1, held_out=0))
    """
    if not 0 <= fraction < 1:
        raise UsageError(f"expected a held-out fraction from 0 to below 1, found {fraction}")
    held_out = 0 if fraction == 0 else min(max(1, round(fraction * p)), p - 1)
    return RowSplit(p - held_out, held_out)


def held_out_loss(
    observation: Observation,
    split: RowSplit,
    candidates: Float[Tensor, "m d"],
    coefficients: Float[Tensor, "m k"],
) -> float | None:
    """||θ_h − αᵀF_h||² / ||θ_h||² on the rows that the attack never used; None where there are none."""
    if split.held_out == 0:
        return None
    weights = observation.weights[:, split.used :]
    if not torch.any(weights):
        return None
    features = observation.features.part(split.used, split.used + split.held_out)
    return SpanLoss(features, weights, candidates.dtype, candidates.device).predict_loss(candidates, coefficients)


def certify(converged: bool, unseen_loss: float | None, split: RowSplit) -> Certificate:
    """The outcome, from the losses alone."""
    if unseen_loss is None:
        outcome = Outcome.SPURIOUS if converged else Outcome.NOT_CONVERGED
    elif unseen_loss <= RECOVERED_BELOW and converged:
        outcome = Outcome.RECOVERED
    elif unseen_loss <= PARTIAL_BELOW:
        outcome = Outcome.PARTIAL
    else:
        outcome = Outcome.SPURIOUS if converged else Outcome.NOT_CONVERGED
    return Certificate(outcome, unseen_loss, split.held_out)
