"""What the phases of an attack work with: the loss on as many rows as they need, refinement, proposals, the floor.

Rows are drawn as they are needed: `rows_a_number` rows for each of the m d unknown numbers (over k, the number of
independent outputs: each row is k equations). Up to `dense_dim` dimensions, where there are many more rows than that,
the free affine part belongs to the span, and more rows are looked at while the residual's moments are needed.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import ROUNDING_MARGIN
from exhume.attacks.foundation.levenberg import DampingState
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.proposals import moment_proposals, moments_blind, pooled_proposals, random_rows
from exhume.attacks.single_layer.pruning import cross_validated
from exhume.attacks.single_layer.span import Fit, SpanLoss

Fits = Generator[Fit, None, Fit]

COARSE_FLOOR = 1e-5  # of products in bfloat16
AFFINE_ROWS = 5  # rows a dimension from which the affine part, d + 2 numbers an output, is a small part of the fit
ROWS_AT_LEAST = 8  # candidates


@runtime_checkable
class RowBudget(Protocol):
    """The hyperparameters that decide on rows and floors."""

    @property
    def dense_dim(self) -> int: ...
    @property
    def converged(self) -> float: ...
    @property
    def growth(self) -> float: ...
    @property
    def rows_a_number(self) -> float: ...
    @property
    def growing_rows_a_number(self) -> float: ...


@dataclass(eq=False)
class SearchContext:
    """One problem on the bench. `growing` says which rows and which precision are looked at now."""

    settings: RowBudget
    problem: Problem
    growing: bool = True
    iteration: int = 0
    _parts: dict[tuple[int, bool], SpanLoss] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loss = self.problem.loss
        rows, d = self.loss.p, self.loss.features.d
        self.small = d <= self.settings.dense_dim
        self.dense = self.small and rows >= AFFINE_ROWS * d
        self.blind = moments_blind(self.loss.features.activation)

    def capacity(self, share: float) -> int:
        """The most candidates for this problem that leave enough equations, and for which there is memory."""
        most = capacity(self.loss.equations, self.loss.unknowns, share)
        return most if self.problem.at_most is None else min(most, self.problem.at_most)

    # --- the loss on some of the rows

    def part(self, m: int) -> SpanLoss:
        """The loss on as many rows as m candidates need, with the affine part where that is affordable."""
        looks_at_moments = self.dense and self.growing
        number = self.settings.growing_rows_a_number if looks_at_moments else self.settings.rows_a_number
        return self.rows_for(m, number, self.dense)

    def rows_for(self, m: int, rows_a_number: float, affine: bool = False) -> SpanLoss:
        p, d, k = self.loss.p, self.loss.features.d, self.loss.outputs
        rows = min(p, math.ceil(rows_a_number * d * max(m, ROWS_AT_LEAST) / k / 1024) * 1024)
        if (rows, affine) not in self._parts:
            whole = self.problem.coarse if self.growing else self.loss
            self._parts[rows, affine] = whole.part(rows, affine)
        return self._parts[rows, affine]

    def clear(self) -> None:
        """Forgets the parts, so that a resumed run does, and counts, the same."""
        self._parts.clear()

    def fit(self, candidates: Float[Tensor, "m d"]) -> Fit:
        return self.part(len(candidates)).fit(candidates)

    # --- the floor

    @property
    def floor(self) -> float:
        """The loss that leaves nothing to explain; that of bfloat16 products is far higher."""
        coarse = self.growing and self.problem.coarse is not self.loss
        return max(self.settings.converged, COARSE_FLOOR) if coarse else self.settings.converged

    def explained(self, fit: Fit) -> bool:
        """Whether the loss is at its floor: that of single precision, or the rounding that the weights show."""
        if fit.loss <= self.floor:
            return True
        return fit.loss <= ROUNDING_MARGIN * self.problem.rounding and not self.structured(fit)

    def structured(self, fit: Fit) -> bool:
        """Whether the residual still points somewhere. Only second moments are asked, and only where they are cheap."""
        if not self.dense or self.blind:
            return False
        return moment_proposals(self.part(len(fit.candidates)), fit.residual, self.problem.norm).outside > 0

    def score(self, fit: Fit) -> float:
        """How well a fit generalises, comparable between numbers of candidates; smaller is better.

        The loss on the steering weights; generalised cross-validation where the affine part, which they do not have,
        belongs to the fit.
        """
        steering = None if self.dense else self.problem.steering_loss(fit.candidates, fit.coefficients)
        return cross_validated(self.part(len(fit.candidates)), fit) if steering is None else steering

    # --- refinement

    def refine(
        self, fit: Fit, iterations: int, stall: int, pace: DampingState | None = None, stall_factor: float = 0.9
    ) -> Fits:
        rule = Levenberg(10 if self.small else 0, 0.1, 1e-4 if self.small else 1e-3, stall, stall_factor)
        loss = self.part(len(fit.candidates))
        for refined in rule.refine(loss, fit, self.problem.norm, iterations, self.floor, pace):
            fit = refined
            self.iteration += 1
            yield fit
        return fit

    def refit(self, candidates: Float[Tensor, "m d"]) -> Fits:
        """Refinement after candidates were removed: patient where iterations are cheap, quick to judge where not."""
        fit = self.fit(candidates)
        if self.small:
            return (yield from self.refine(fit, 60, stall=8))
        return (yield from self.refine(fit, 60, stall=5, stall_factor=0.7))

    # --- new candidates

    def random_start(self, count: int, generator: torch.Generator) -> Float[Tensor, "count d"]:
        d = self.loss.features.d
        return random_rows(count, d, self.problem.norm, generator, self.loss.weights.to(self.problem.dtype))

    def propose(self, fit: Fit | None, cap: int, generator: torch.Generator) -> Float[Tensor, "count d"]:
        """Rows to add to m candidates: eigenvectors of the residual's moment, or random ones."""
        m = 0 if fit is None else len(fit.candidates)
        if not self.dense:
            known = self.problem.samples is not None
            return self.random_start(cap - m if known else min(cap - m, max(8, m // 2)), generator)
        loss = self.part(max(m, 1))
        residual = loss.bare_residual() if fit is None else fit.residual
        if self.blind:
            found = pooled_proposals(loss, residual, self.problem.norm, generator)
        else:
            found = moment_proposals(loss, residual, self.problem.norm)
        most = max(1, cap // 2) if fit is None else min(cap - m, max(1, int(self.settings.growth * m)))
        return found.rows[: max(1, min(most, found.outside))]


def capacity(equations: int, unknowns: int, share: float) -> int:
    """How many candidates of so many unknowns leave enough equations: m (d − 1 + k) <= share · k p, at least 2."""
    return max(2, math.floor(share * equations / unknowns))
