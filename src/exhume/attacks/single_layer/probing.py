"""The errors to expect where there are too many unknowns for `linearised.py`: the same by products with H alone.

tr [H⁻¹]_ii is the mean of z_i · (H⁻¹ z)_i over random signs z, and the step is H⁻¹ Jᵀ P θ. Each is a system in H,
solved by conjugate gradients with the preconditioner M ⊗ S, M the metric of `gauss_newton.py` and S = VᵀV. Where rows
are as good as random, the spectrum is Marchenko-Pastur's and the error falls by √q a product, q the unknowns over the
equations. Where it has not fallen to a tenth after `PRODUCTS`, there are directions that the rows hardly see. Nothing
is said then: the errors are infinite.

Each probe errs by about sqrt(2 / d): one is enough in many dimensions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import conjugate_gradients
from exhume.attacks.single_layer.gauss_newton import Model, away_from_kinks, linearise
from exhume.attacks.single_layer.span import Fit, SpanLoss

PRODUCTS = 30
FALLEN = 0.1
ROWS_EACH = 4  # equations for each unknown: products of more would take longer and change little
RIDGE = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class Probed:
    """`variances`: tr [H⁻¹]_ii. `step`: how far each candidate would still move. Infinite where neither is known."""

    variances: Float[Tensor, " m"]
    step: Float[Tensor, "m d"]

    @classmethod
    def at(cls, loss: SpanLoss, fit: Fit, probes: int = 1) -> "Probed":
        m, d = fit.candidates.shape
        rows = min(loss.p, ROWS_EACH * m * loss.unknowns // loss.outputs + 1)
        part = loss.part(rows)
        fit = part.fit(fit.candidates)
        system = _System(part, fit)
        step, settled = system.solve(system.model.descent)
        stream = torch.Generator().manual_seed(0)
        total = torch.zeros(m, dtype=torch.float64, device=step.device)
        for _ in range(probes):
            signs = torch.randint(0, 2, (m, d), generator=stream).to(step) * 2 - 1
            signs = part.allowed(signs, fit.candidates)
            solved, found = system.solve(signs)
            settled, total = settled and found, total + (signs * solved).double().sum(dim=1) / probes
        lost = torch.full_like(total, torch.inf)
        # one probe of all candidates at once has cross terms of either sign: no less than rows alike in all directions
        alike = system.inverse.diagonal().double() * (part.unknowns - part.outputs)
        total = torch.maximum(total.abs(), alike) * (rows / loss.p)  # rows are alike: all of them tell as much more
        return cls(total if settled else lost, step if settled else torch.full_like(step, torch.inf))


class _System:
    """H and its preconditioner at a fit."""

    def __init__(self, loss: SpanLoss, fit: Fit) -> None:
        self.loss, self.fit = loss, fit
        self.model: Model = linearise(loss, fit)
        self.slopes = self.model.slopes * away_from_kinks(loss, fit.preactivations)
        self.inverse = self.model.damped_metric_inverse(RIDGE).to(fit.candidates.dtype)
        self.moment = _second_moment(loss)

    def curve(self, directions: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """H times directions. Two passes."""
        weights = self.fit.coefficients.to(directions.dtype)
        moved = weights.T @ self.loss.push_forward(directions).mul_(self.slopes)
        moved, _ = self.loss.project(self.fit, moved)
        pulled = self.loss.pull_back(lambda block: self.slopes[:, block] * (weights @ moved[:, block]), directions)
        return self.loss.allowed(pulled, self.fit.candidates)

    def conditioned(self, directions: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        if self.moment is not None:
            directions = torch.cholesky_solve(directions.T.to(self.moment), self.moment).T.to(directions)
        return self.loss.allowed(self.inverse @ directions, self.fit.candidates)

    def solve(self, wanted: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "m d"], bool]:
        """H⁻¹ wanted, and whether what is left of it fell to a tenth."""
        found = conjugate_gradients(self.curve, wanted, PRODUCTS, FALLEN**2, self.conditioned)
        return found.x, found.settled


def _second_moment(loss: SpanLoss) -> Float[Tensor, "d d"] | None:
    """The Cholesky factor of VᵀV over its mean eigenvalue, from a few rows for each dimension; None where it is I."""
    d = loss.features.d
    if loss.p < 2 * d:
        return None
    total = torch.zeros(d, d, dtype=torch.float64)
    for start in range(0, min(loss.features.p, 4 * d), loss.features.rows.block_rows):
        rows = (
            loss.features.rows.block(start, min(start + loss.features.rows.block_rows, loss.features.p)).double().cpu()
        )
        total += rows.T @ rows
    total = loss.ranks.sum(total.to(loss.weights.device))
    size = total.diagonal().mean()
    return torch.linalg.cholesky(total / size + RIDGE * torch.eye(d).to(total)).to(loss.weights.device)
