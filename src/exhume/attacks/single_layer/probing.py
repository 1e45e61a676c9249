"""The errors to expect where there are too many unknowns for `linearised.py`: the same by products with H alone.

tr [H⁻¹]_ii is that of `foundation/probing.py`, and the step is H⁻¹ Jᵀ P θ. The preconditioner is M ⊗ S, M the metric of
`gauss_newton.py` and S = VᵀV. Where rows are as good as random, the spectrum is Marchenko-Pastur's and the error falls
by √q a product, q the unknowns over the equations. Where products do not settle, there are directions that the rows
hardly see. Nothing is said then: the errors are infinite.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation import probing
from exhume.attacks.single_layer.gauss_newton import Model, away_from_kinks, linearise
from exhume.attacks.single_layer.span import Fit, SpanLoss

ROWS_EACH = 4  # equations for each unknown: products of more would take longer and change little
RIDGE = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class Probed:
    """`variances`: tr [H⁻¹]_ii. `step`: how far each candidate would still move. Infinite where neither is known."""

    variances: Float[Tensor, " m"]
    step: Float[Tensor, "m d"]

    @classmethod
    def at(cls, loss: SpanLoss, fit: Fit, probes: int = 1) -> "Probed":
        m = len(fit.candidates)
        rows = min(loss.p, ROWS_EACH * m * loss.unknowns // loss.outputs + 1)
        part = loss.part(rows)
        fit = part.fit(fit.candidates)
        system = _System(part, fit)
        step, settled = system.solve(system.model.descent)
        total = system.traces(probes)
        # one probe of all candidates at once has cross terms of either sign: no less than rows alike in all directions
        alike = system.inverse.diagonal().double() * (part.unknowns - part.outputs)
        total = torch.maximum(total, alike) * (rows / loss.p)  # rows are alike: all of them tell as much more
        return cls(total, step if settled else torch.full_like(step, torch.inf))


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
        """H⁻¹ wanted, and whether no direction hides in what is left of it."""
        return probing.solve(self.curve, wanted, self.conditioned)

    def traces(self, probes: int) -> Float[Tensor, " m"]:
        """tr [H⁻¹]_ii, infinite where it is not known."""
        candidates = self.fit.candidates

        def allowed(directions: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
            return self.loss.allowed(directions, candidates)

        return probing.traces(self.curve, self.conditioned, allowed, candidates, probes)


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
