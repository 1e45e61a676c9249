"""The equations linearised at a fit, with all their unknowns: what noise on the weights does to each candidate.

Near a fit θ ≈ AᵀF the weights move with coefficients and candidates as dAᵀ F + Σ_i A_i φ'(z_i) ∘ V dx_i. With the
coefficients eliminated (P projects every output off the candidates' features) and J the k p × m u matrix of what is left
of the second part,

    H = Jᵀ P J,      dx = H⁻¹ Jᵀ P θ,      E ||x̂_i − x_i||² = σ² tr [H⁻¹]_ii

are the curvature, the step that is still to be made, and the error that noise of variance σ² on each equation lets
expect. Nothing here supposes that rows of V are isotropic, or that they differ: directions that no row sees, an exchange
that no weight notices and candidates that stand in for each other are small singular values of P J.

The unknowns of a candidate are its u = d − 1 directions at its norm, or all u = d where the norm is not known and φ
shows it. Outputs that repeat each other are one equation: A is turned so that r ≤ k of its columns are not negligible.
Rows at whose kink a candidate came to rest (ReLU) do not count: rounding chose the slope.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.gauss_newton import away_from_kinks
from exhume.attacks.single_layer.span import Fit, SpanLoss

LEAST_SPARE = 1e-3
UNSEEN = 1e-10  # of its column: what stands for a singular value of zero, far below what any noise resolves


@dataclass(frozen=True, eq=False)
class Linearised:
    """P J by its QR factors, Q (r p × m u) and R, in coordinates of unit columns.

    `bases`: the unknown directions of each candidate, in columns. `amplitudes`: A, turned to its r outputs.
    `spanned`: an orthonormal basis of the features. `inverse`: R⁻¹, with the scales of the columns.
    """

    bases: Float[Tensor, "m d u"]
    amplitudes: Float[Tensor, "m r"]
    rows: Float[Tensor, "p d"]
    spanned: Float[Tensor, "p m"]
    tangents: Float[Tensor, "rp mu"]
    inverse: Float[Tensor, "mu mu"]
    step: Float[Tensor, "m d"]
    left_out: float

    @classmethod
    def at(cls, loss: SpanLoss, fit: Fit, free_norm: bool) -> "Linearised":
        """In double precision, m u (r p) numbers at once."""
        features, candidates = loss.features, fit.candidates.double()
        m, d = candidates.shape
        rows = torch.cat([features.rows.block(start, min(start + 4096, loss.p)) for start in range(0, loss.p, 4096)])
        rows = rows.to(device=candidates.device, dtype=torch.float64)
        bases = unknown_directions(candidates, free_norm)
        turned = torch.linalg.eigh(fit.coefficients.T @ fit.coefficients).eigenvectors[:, -loss.outputs :]
        amplitudes = fit.coefficients @ turned
        with torch.no_grad():
            preactivations = candidates @ rows.T
            if features.bias is not None:
                preactivations += features.bias.to(preactivations)
            values = features.activation.value(preactivations)
            slopes = features.activation.derivative(preactivations) * away_from_kinks(loss, preactivations)
        spanned = torch.linalg.qr(values.T / values.norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)).Q
        targets = turned.T @ (loss.published.double() / loss.scale).to(rows)
        columns = torch.einsum("ip,pd,idu->piu", slopes, rows, bases).reshape(len(rows), -1)
        columns = columns - spanned @ (spanned.T @ columns)
        columns = columns - spanned @ (spanned.T @ columns)
        tangents = torch.cat([columns * amplitudes[:, o].repeat_interleave(bases.shape[2]) for o in range(loss.outputs)])
        left = torch.cat([row - spanned @ (spanned.T @ row) for row in targets])
        scale = tangents.norm(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        stacked = torch.cat([tangents / scale, UNSEEN * torch.eye(len(scale)).to(tangents)])
        factors = torch.linalg.qr(stacked)
        inverse = torch.linalg.solve_triangular(factors.R, torch.eye(len(scale)).to(tangents), upper=True)
        inverse = inverse / scale[:, None]
        seen = factors.Q[: len(tangents)]
        moves = (inverse @ (seen.T @ left)).reshape(m, -1)
        known = spanned.square().sum(dim=1).repeat(loss.outputs) + seen.square().sum(dim=1)
        rest = left - seen @ (seen.T @ left)
        left_out = float((left / (1 - known).clamp_min(LEAST_SPARE)).square().mean())
        step = torch.einsum("idu,iu->id", bases, moves)
        return cls(bases, amplitudes, rows, spanned, seen, inverse, step, left_out)

    def variances(self, counted: int) -> Float[Tensor, " m"]:
        """tr [H⁻¹]_ii over the first `counted` coordinates of each candidate."""
        spread = torch.einsum("idu,iun->idn", self.bases[:, :counted], self._blocks())
        return spread.square().sum(dim=(1, 2))

    def weakest(self) -> Float[Tensor, "m d"]:
        """The direction of each candidate that the equations determine least."""
        blocks = self._blocks()
        vectors = torch.linalg.eigh(blocks @ blocks.transpose(1, 2)).eigenvectors[:, :, -1]
        return torch.einsum("idu,iu->id", self.bases, vectors)

    def not_made_up(self, changes: Float[Tensor, "c rp"]) -> Float[Tensor, "c rp"]:
        """What of changes of the weights no small change of coefficients and candidates makes up for."""
        outputs = self.amplitudes.shape[1]
        apart = changes.reshape(len(changes) * outputs, -1)
        left = (apart - (apart @ self.spanned) @ self.spanned.T).reshape(len(changes), -1)
        for _ in range(2):
            left = left - (left @ self.tangents) @ self.tangents.T
        return left

    def values(self, loss: SpanLoss, points: Float[Tensor, "c d"]) -> Float[Tensor, "c p"]:
        """Features of any points."""
        preactivations = points @ self.rows.T
        if loss.features.bias is not None:
            preactivations += loss.features.bias.to(preactivations)
        with torch.no_grad():
            return loss.features.activation.value(preactivations)

    def _blocks(self) -> Float[Tensor, "m u mu"]:
        m, _, u = self.bases.shape
        return self.inverse.reshape(m, u, -1)


def unknown_directions(candidates: Float[Tensor, "m d"], free_norm: bool) -> Float[Tensor, "m d u"]:
    """An orthonormal basis of what may change in each candidate: all directions, or those at its norm."""
    m, d = candidates.shape
    eye = torch.eye(d).to(candidates).expand(m, d, d)
    if free_norm:
        return eye
    units = candidates / candidates.norm(dim=1, keepdim=True).clamp_min(torch.finfo(candidates.dtype).tiny)
    first = torch.where(units[:, :1] < 0, -1.0, 1.0)
    mirror = units + first * eye[:, 0]  # Householder's, which takes x to a multiple of the first axis
    return (eye - 2 * mirror[:, :, None] * mirror[:, None] / mirror.square().sum(dim=1)[:, None, None])[:, :, 1:]
