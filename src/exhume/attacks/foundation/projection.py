"""Weights projected on the span of candidates' features: what all losses of this kind have in common.

For features F (m × p) of m candidates and weights θ (k × p)

    α = (F Fᵀ)⁺ F θᵀ,      r = θ − αᵀ F,      L = ||r||² / ||θ||².

Removing candidate i and refitting the others' coefficients raises ||r||² by ||α_i||² / [(F Fᵀ)⁻¹]_ii.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.errors import ExhumeError

NEGLIGIBLE_OUTPUT = 1e-2  # a singular value of the weights, relative to the largest, that is no output of its own
LEAST_SPARE = 1e-3  # of the equations, where there are as many unknowns
TOLERATED = 1.02  # how much a score on unseen weights may rise when a candidate is removed


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    """`gram_inverse` is the pseudo-inverse of F Fᵀ, or of what a loss has in its place."""

    candidates: Float[Tensor, "m d"]
    features: Float[Tensor, "m p"]
    gram_inverse: Float[Tensor, "m m"]
    coefficients: Float[Tensor, "m k"]
    residual: Float[Tensor, "k p"]
    loss: float


@runtime_checkable
class Projected(Protocol):
    """A loss whose fits are projections. `energy` is ||θ||²."""

    energy: float


def removal_costs(fit: Projection, loss: Projected) -> Float[Tensor, " m"]:
    """By how much L rises if a candidate is removed and the others' coefficients are fitted again."""
    diagonal = fit.gram_inverse.diagonal().clamp_min(torch.finfo(torch.float64).tiny)
    return fit.coefficients.square().sum(dim=1) / diagonal / loss.energy


def cross_validated(loss: float, unknowns: float, equations: int) -> float:
    """L / (1 − unknowns / equations)²: generalised cross-validation, comparable between numbers of candidates."""
    return loss / max(LEAST_SPARE, 1 - unknowns / equations) ** 2


def invert_gram(gram: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    """The pseudo-inverse of F Fᵀ, also where candidates coincide or m exceeds p.

    Candidates are scaled to unit feature norm, and directions whose eigenvalue drowns in rounding
    are left out: they would otherwise come back as huge coefficients of opposite signs.
    """
    norms = gram.diagonal().clamp_min(0).sqrt()
    inverse = torch.where(norms > 0, 1 / norms.clamp_min(torch.finfo(gram.dtype).tiny), torch.zeros_like(norms))
    values, vectors = torch.linalg.eigh(gram * inverse[:, None] * inverse)
    kept = values > 8 * len(gram) * torch.finfo(gram.dtype).eps * values[-1:].clamp_min(0)
    reciprocal = torch.where(kept, 1 / torch.where(kept, values, 1.0), torch.zeros_like(values))
    return inverse[:, None] * ((vectors * reciprocal) @ vectors.T) * inverse


def independent_outputs(weights: Float[Tensor, "k p"], ranks: Ranks = ALONE) -> int:
    """The number of outputs that are not combinations of the others, but for what drift or rounding adds to them."""
    values = torch.linalg.eigvalsh(ranks.sum((weights @ weights.T).double()))
    return int((values > (NEGLIGIBLE_OUTPUT**2) * values[-1]).sum())


def to_unit_scale(
    weights: Float[Tensor, "k p"], dtype: torch.dtype, device: torch.device | str, ranks: Ranks = ALONE
) -> tuple[Float[Tensor, "k p"], float]:
    """The weights divided by their root mean square, and that number."""
    largest = ranks.largest(float(weights.abs().max()) if weights.numel() else 0.0)
    if largest == 0:
        raise ExhumeError("expected weights that differ from zero, found all of them zero: nothing was learned")
    scaled = weights.double() / largest  # first, so that no square over- or underflows
    mean_square = ranks.total(float(scaled.square().sum())) / ranks.total(weights.numel())
    root_mean_square = math.sqrt(mean_square)
    return (scaled / root_mean_square).to(dtype=dtype, device=device), largest * root_mean_square
