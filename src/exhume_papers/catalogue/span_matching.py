"""Candidates whose features span given vectors, by Levenberg-Marquardt: the hypothesis of Theorems 1 and 2, solved.

For targets T (t × p), the features of the samples or the weights θ alone, and candidates X̂ with features F = φ(X̂Vᵀ),

    A = T F⁺,      R = T − A F,      share = ‖R‖² / ‖T‖²,

and, with A eliminated, R changes with x̂_j by −a_ij P⊥ (φ′(V x̂_j) ∘ V). Rows go back to norm √d after each step.
Problems are small, so the Jacobian is formed.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import Activation
from exhume.metrics.matching import to_norm

MATCHED = 1e-12
"""A share of the targets' energy that is unexplained: rounding in float64 leaves less."""
STALLED = 12
"""Steps that gain less than 1 % each, after which a start is given up: it is at another minimum."""
CLOSE = 0.1
"""A candidate stands for a sample within this, in units of √d."""


@dataclass(frozen=True, eq=False, repr=False)
class Matched:
    candidates: Float[Tensor, "m d"]
    share: float

    @property
    def exact(self) -> bool:
        return self.share < MATCHED

    def farthest(self, samples: Float[Tensor, "n d"]) -> float:
        """The largest distance of a candidate to the sample that is nearest to it, over √d; signs count."""
        return float(self._distances(samples).min(dim=0).values.max())

    def missing(self, samples: Float[Tensor, "n d"]) -> int:
        """How many samples have no candidate close to them."""
        return int((self._distances(samples).min(dim=1).values > CLOSE).sum())

    def _distances(self, samples: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        distances = torch.cdist(samples, self.candidates, compute_mode="donot_use_mm_for_euclid_dist")
        return distances / samples.shape[1] ** 0.5


def match_span(
    targets: Float[Tensor, "t p"],
    rows: Float[Tensor, "p d"],
    phi: Activation,
    start: Float[Tensor, "m d"],
    iterations: int = 200,
) -> Matched:
    """The best that Levenberg-Marquardt reaches from a start."""
    norm = math.sqrt(rows.shape[1])
    candidates, energy, damping = to_norm(start, norm), float(targets.square().sum()), 1e-2
    coefficients, basis, left = _project(targets, rows, phi, candidates)
    share = float(left.square().sum()) / energy
    stalled = 0
    for _ in range(iterations):
        if share < 1e-24 or damping > 1e8 or stalled == STALLED:
            break
        jacobian = _jacobian(rows, phi, candidates, coefficients, basis)
        gram = jacobian.T @ jacobian
        largest = gram.diagonal().max()
        if largest == 0:  # nothing fires on any candidate
            break
        scale = damping * gram.diagonal() + 1e-14 * largest
        step = torch.linalg.solve(gram + torch.diag(scale), jacobian.T @ left.flatten())
        moved = to_norm(candidates - step.reshape(candidates.shape), norm)
        trial = _project(targets, rows, phi, moved)
        reached = float(trial[2].square().sum()) / energy
        stalled = 0 if reached < 0.99 * share else stalled + 1
        if reached < share:
            candidates, (coefficients, basis, left), share = moved, trial, reached
            damping = max(damping / 5, 1e-12)
        else:
            damping *= 4
    return Matched(candidates, share)


def _project(
    targets: Float[Tensor, "t p"], rows: Float[Tensor, "p d"], phi: Activation, candidates: Float[Tensor, "m d"]
) -> tuple[Float[Tensor, "t m"], Float[Tensor, "p m"], Float[Tensor, "t p"]]:
    """A, an orthonormal basis of the candidates' features, and R."""
    with torch.no_grad():
        features = phi.value(candidates @ rows.T)
    basis, triangle = torch.linalg.qr(features.T)
    inside = targets @ basis
    coefficients = torch.linalg.lstsq(triangle, inside.T, driver="gelsd").solution.T
    return coefficients, basis, targets - inside @ basis.T


def _jacobian(
    rows: Float[Tensor, "p d"],
    phi: Activation,
    candidates: Float[Tensor, "m d"],
    coefficients: Float[Tensor, "t m"],
    basis: Float[Tensor, "p m"],
) -> Float[Tensor, "tp md"]:
    slopes = phi.derivative(candidates @ rows.T).detach()
    blocks = slopes[:, :, None] * rows  # m, p, d
    blocks = blocks - torch.einsum("pk,mkd->mpd", basis, torch.einsum("pk,mpd->mkd", basis, blocks))
    whole = -torch.einsum("tm,mpd->tpmd", coefficients, blocks)
    return whole.reshape(len(coefficients) * len(rows), candidates.numel())
