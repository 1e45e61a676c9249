"""Levenberg-Marquardt on the loss with a prior: conjugate gradients, preconditioned by what isotropic rows let expect.

For isotropic rows the Gauss-Newton matrix is, up to sampling, M ⊗ I + diag(||A_i||²) ⊗ diag(λ_j): in the scaled
coordinates ||A_i|| x_i it is N ⊗ I + I ⊗ diag(λ_j) with N = M_il / (||A_i|| ||A_l||), and one eigendecomposition of the
m × m matrix N inverts it for every coordinate at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation import projection
from exhume.attacks.foundation.conjugate_gradients import conjugate_gradients
from exhume.attacks.foundation.levenberg import DampingState, Move, Refinement
from exhume.attacks.foundation.retraction import tangent, to_norm
from exhume.attacks.prior.loss import PriorFit, PriorLoss, PriorModel
from exhume.attacks.single_layer.gauss_newton import damped_move

LEAST_COEFFICIENT = 1e-3  # of the largest: candidates below it are moved as if they had it


@dataclass(frozen=True)
class PriorNewton:
    """At most `products` conjugate-gradient products per step; ends where J fell by less than `stall_factor` over
    `stall` steps."""

    products: int = 8
    forcing: float = 0.1
    damping_floor: float = 1e-5
    stall: int = 8
    stall_factor: float = 0.99

    def refine(self, loss: PriorLoss, fit: PriorFit, norm: float, iterations: int) -> Iterator[PriorFit]:
        """Yields the fit after each accepted or refused step; J never rises. The last one is the result."""

        def attempt(model: PriorModel, pace: DampingState) -> tuple[Move, PriorFit]:
            move = self.move(loss, model, pace.damping)
            return move, loss.fit(to_norm(model.fit.candidates + move.change, norm))

        descent = Refinement[PriorFit, PriorModel](
            lambda fit: fit.objective, loss.linearise, attempt, self.damping_floor, self.stall, self.stall_factor
        )
        return descent.refine(fit, iterations, 0.0, DampingState())

    def move(self, loss: PriorLoss, model: PriorModel, damping: float) -> Move:
        """Truncated conjugate gradients on (H + damping · diag M) dX = G."""
        descent, candidates = model.descent, model.fit.candidates
        sizes = model.fit.coefficients.norm(dim=1)
        sizes = sizes.clamp_min(LEAST_COEFFICIENT * float(sizes.max()))
        inverse = _Preconditioner(model, loss.penalties, sizes, damping)
        weight = (damping * sizes.square() * inverse.curvature).to(descent.dtype)[:, None]
        found = conjugate_gradients(
            lambda direction: loss.curve(model, direction) + weight * direction,
            descent,
            self.products,
            self.forcing**2,
            lambda left: tangent(inverse(left), candidates),
        )
        return damped_move(found, descent, weight, loss.energy)


class _Preconditioner:
    def __init__(
        self, model: PriorModel, penalties: Float[Tensor, " r"], sizes: Float[Tensor, " m"], damping: float
    ) -> None:
        own = model.fit.coefficients.norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
        overlap = model.metric / own[:, None] / own  # that of the slopes, where there is one output
        self.curvature = overlap.diagonal().clamp_min(1e-12 * float(overlap.diagonal().max()))
        values, vectors = torch.linalg.eigh(overlap + damping * torch.diag(self.curvature))
        values = values.clamp_min(1e-9 * float(values[-1]))
        dtype = model.descent.dtype
        self.vectors, self.sizes = vectors.to(dtype), sizes.to(dtype)[:, None]
        self.inverse = (1 / (values[:, None] + penalties.double())).to(dtype)

    def __call__(self, values: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return (self.vectors @ ((self.vectors.T @ (values / self.sizes)) * self.inverse)) / self.sizes


def cross_validated(loss: PriorLoss, model: PriorModel) -> float:
    """L / (1 − f / (k p))²: generalised cross-validation, for where few weights are left to steer by.

    f is the number of free parameters that the prior leaves: Σ_lj n_l / (n_l + λ_j) over the eigenvalues n_l of N, and
    m k coefficients.
    """
    own = model.fit.coefficients.norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
    values = torch.linalg.eigvalsh(model.metric / own[:, None] / own).clamp_min(torch.finfo(torch.float64).tiny)
    free = float((values[:, None] / (values[:, None] + loss.penalties.double())).sum()) + model.fit.coefficients.numel()
    return projection.cross_validated(model.fit.loss, free, loss.weights.numel())
