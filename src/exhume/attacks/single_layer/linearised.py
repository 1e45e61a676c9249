"""The equations linearised at a fit, with all their unknowns: what noise on the weights does to each candidate.

Near a fit θ ≈ AᵀF the weights move with coefficients and candidates as dAᵀ F + Σ_i A_i φ'(z_i) ∘ V dx_i. With the
coefficients eliminated (P projects every output off the candidates' features) and J the r p × m u matrix of the second
part,

    H = Jᵀ P J,      dx = H⁻¹ Jᵀ P θ,      E ||x̂_i − x_i||² = σ² tr [H⁻¹]_ii

are the curvature, the step that is still to be made, and the error that noise of variance σ² on each equation lets
expect. Nothing here supposes that rows of V are isotropic, or that they differ: directions that no row sees, rows that
nearly repeat each other and candidates that stand in for each other are small singular values of P J.

The unknowns of a candidate are its u = d − 1 directions at its norm, or all u = d where the norm is not known and φ
shows it. Outputs that repeat each other are one equation: A is turned so that r ≤ k of its columns are not negligible.
Rows at whose kink a candidate came to rest (ReLU) do not count in J: rounding chose the slope.

Up to `DENSE` unknowns all of this is solved as it stands. Beyond, `probing.py` takes its place.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import TRUSTED_ERROR
from exhume.attacks.foundation.unknowns import TINY, factors, turned_outputs, unknown_directions
from exhume.attacks.single_layer.gauss_newton import away_from_kinks
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import hold
from exhume.solving import least_squares

E = TypeVar("E", bound="Explanation")
ROWS_EACH, FEW_ROWS = 10, 4000  # equations for each unknown, or so many rows: more only make the errors smaller
LEAST_SPARE = 1e-3  # of an equation that the others do not predict already


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What candidates explain on some rows, in double precision, and what small changes of them would explain too.

    `weights`: θ, turned to r outputs, and `amplitudes`: A. `spanned`: an orthonormal basis of the candidates' features.
    `residual`: what they leave of the weights. `tangents`: a basis of what small changes of the candidates do besides;
    it may have no columns.
    """

    features: RidgeFeatures
    candidates: Float[Tensor, "m d"]
    weights: Float[Tensor, "r p"]
    amplitudes: Float[Tensor, "m r"]
    spanned: Float[Tensor, "p s"]
    residual: Float[Tensor, " rp"]
    tangents: Float[Tensor, "rp c"]

    @property
    def rows(self) -> Float[Tensor, "p d"]:
        assert self.features.rows.held is not None
        return self.features.rows.held

    def slopes_at(self, candidates: Float[Tensor, "c d"]) -> Float[Tensor, "c p"]:
        """φ' of candidates that are not at a kink."""
        preactivations = torch.cat([block for _, block in self.features.preactivation_blocks(candidates)], dim=1)
        with torch.no_grad():
            return self.features.activation.derivative(preactivations)

    def change(self, features: Float[Tensor, "m p"]) -> Float[Tensor, "m rp"]:
        """What a change of each candidate's features does to the weights of all outputs."""
        return (self.amplitudes[:, :, None] * features[:, None]).flatten(1)

    def not_made_up(self, changes: Float[Tensor, "c rp"]) -> Float[Tensor, "c rp"]:
        """What of changes of the weights no small change of coefficients and candidates makes up for."""
        apart = changes.reshape(-1, len(self.spanned))
        left = (apart - (apart @ self.spanned) @ self.spanned.T).reshape(changes.shape)
        for _ in range(2):
            left = left - (left @ self.tangents) @ self.tangents.T
        return left

    def rise(self, left: Float[Tensor, "c rp"]) -> Float[Tensor, " c"]:
        """||r − c||² − ||r||²: by how much what is left of the weights would rise with changes that leave c."""
        return left.square().sum(dim=1) - 2 * left @ self.residual

    def refined(self: E, step: Float[Tensor, "m d"]) -> E:
        """The same where candidates have made the step that is still to be made, if it is small and explains more.

        They were rounded to single precision, and what they differ by from another explanation must not be that.
        """
        small = step.norm(dim=1) < TRUSTED_ERROR * self.candidates.norm(dim=1)
        candidates = self.candidates + step.where(small[:, None], 0.0)
        values = self.features(candidates)
        spanned = basis(values)
        left = torch.cat([row - spanned @ (spanned.T @ row) for row in self.weights])
        if not left.square().sum() < self.residual.square().sum():
            return self
        amplitudes = least_squares(values.T, self.weights.T)
        return replace(self, candidates=candidates, amplitudes=amplitudes, spanned=spanned, residual=left)


def explanation(loss: SpanLoss, fit: Fit, rows: int) -> Explanation:
    """On the first rows of this rank, with nothing but the coefficients that may change."""
    features, candidates = loss.features.part(0, min(rows, loss.features.p)), fit.candidates.double()
    held = replace(features, rows=hold(features.rows, candidates.device, torch.float64))
    amplitudes, turned = turned_outputs(fit.coefficients, loss.outputs)
    spanned = basis(held(candidates))
    targets = turned.T @ (loss.published[:, : held.p].to(candidates) / loss.scale)
    residual = torch.cat([row - spanned @ (spanned.T @ row) for row in targets])
    return Explanation(held, candidates, targets, amplitudes, spanned, residual, residual.new_zeros(len(residual), 0))


def basis(values: Float[Tensor, "m p"]) -> Float[Tensor, "p s"]:
    return torch.linalg.qr(values.T / values.norm(dim=1).clamp_min(TINY)).Q


@dataclass(frozen=True, eq=False, repr=False)
class Linearised(Explanation):
    """With P J by its QR factors in unit columns: `tangents` (Q), and `inverse` (R⁻¹, with the scales of the columns).

    `bases`: the unknown directions of each candidate, in columns. `left_out`: the mean square by which each equation is
    missed if it is left out of the fit, what is left of it over 1 − its leverage.
    """

    bases: Float[Tensor, "m d u"]
    inverse: Float[Tensor, "mu mu"]
    step: Float[Tensor, "m d"]
    left_out: float

    @classmethod
    def at(cls, loss: SpanLoss, fit: Fit) -> "Linearised":
        candidates, outputs = fit.candidates.double(), loss.outputs
        bases = unknown_directions(candidates, loss.free_norms)
        m, _, u = bases.shape
        p = min(loss.p, max(FEW_ROWS, ROWS_EACH * m * (u + outputs) // outputs))
        plain = explanation(loss, fit, p)
        amplitudes, spanned, rows, left = plain.amplitudes, plain.spanned, plain.rows, plain.residual
        preactivations = torch.cat([block for _, block in plain.features.preactivation_blocks(candidates)], dim=1)
        with torch.no_grad():
            slopes = plain.features.activation.derivative(preactivations) * away_from_kinks(loss, preactivations)
        columns = torch.einsum("ip,pd,idu->piu", slopes, rows, bases).reshape(p, m * u)
        for _ in range(2):
            columns = columns - spanned @ (spanned.T @ columns)
        tangents = torch.cat([columns * amplitudes[:, o].repeat_interleave(u) for o in range(outputs)])
        inverse, seen = factors(tangents)
        step = torch.einsum("idu,iu->id", bases, (inverse @ (seen.T @ left)).reshape(m, u))
        leverage = spanned.square().sum(dim=1).repeat(outputs) + seen.square().sum(dim=1)
        left_out = float((left / (1 - leverage).clamp_min(LEAST_SPARE)).square().mean())
        known = (plain.features, candidates, plain.weights, amplitudes, spanned, left)
        return cls(*known, seen, bases, inverse, step, left_out)

    def moves_against(
        self, changes: Float[Tensor, "c rp"], lifts: Float[Tensor, "m e d"] | None = None
    ) -> Float[Tensor, "c m"]:
        """How far each candidate moves to make up for each change of the weights."""
        apart = changes.reshape(-1, len(self.spanned))
        left = (apart - (apart @ self.spanned) @ self.spanned.T).reshape(changes.shape)
        m, _, u = self.bases.shape
        steps = (left @ self.tangents @ self.inverse.T).reshape(len(changes), m, u)
        bases = self.bases if lifts is None else lifts @ self.bases
        return torch.einsum("idu,ciu->cid", bases, steps).norm(dim=2)

    def variances(self, lifts: Float[Tensor, "m e d"] | None = None) -> Float[Tensor, " m"]:
        """tr [H⁻¹]_ii, or tr L [H⁻¹]_ii Lᵀ where samples move by L dx."""
        return self._spread(lifts).square().sum(dim=(1, 2))

    def largest(self, lifts: Float[Tensor, "m e d"] | None = None) -> Float[Tensor, " m"]:
        """The largest eigenvalue of the same: the variance along the direction that is determined least."""
        return torch.linalg.matrix_norm(self._spread(lifts), 2).square()

    def _spread(self, lifts: Float[Tensor, "m e d"] | None) -> Float[Tensor, "m e mu"]:
        moves = self.bases if lifts is None else lifts @ self.bases
        return moves @ self._blocks

    @property
    def _blocks(self) -> Float[Tensor, "m u mu"]:
        m, _, u = self.bases.shape
        return self.inverse.reshape(m, u, -1)
