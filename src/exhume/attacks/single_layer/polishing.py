"""Polishing: signs, then Gauss-Newton on the published loss (no affine part) down to the rounding of the weights."""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.levenberg import DampingState
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.removal import watching
from exhume.attacks.single_layer.search_context import Fits, SearchContext
from exhume.attacks.single_layer.signs import repair_signs, with_opposites
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.turning import Turning, signs_tell, telling

SETTLED = 1e-6  # a loss from which all samples are likely there: what is needless then is not replaced
TURN_BELOW, TURNS = 1e-2, 8  # a loss above which other things are wrong; candidates that are tried in vain
TURNED_ITERATIONS = 12  # show whether a sign was wrong, far from the floor


@dataclass(frozen=True, eq=False)
class Polishing:
    """`exact`: in float64."""

    bench: SearchContext
    problem: Problem
    rows_a_number: float
    exact: bool

    def run(self, candidates: Float[Tensor, "m d"]) -> Generator[Fit, None, tuple[Fit, bool]]:
        """The fit, and whether it is only now that the weights are explained."""
        loss = self.bench.rows_for(len(candidates), self.rows_a_number)
        candidates = repair_signs(loss, candidates)
        if self.exact:
            loss, candidates = loss.to(torch.float64), candidates.double()
        start = loss.fit(candidates)
        fit = yield from self._settle(loss, start)
        fit = yield from self._turn_wrong(loss, fit)
        paired = None
        if self.problem.samples is None and not self.bench.explained(fit):
            paired = with_opposites(loss, start, self.bench.floor)
        if paired is not None:
            trial = yield from watching(fit, self._settle(loss, loss.fit(paired)))
            fit = trial if self.bench.explained(trial) else fit
        # not late where opposites were found: with its affine part, pruning would part x from −x again
        late = paired is None and start.loss > SETTLED and not self.bench.explained(start) and self.bench.explained(fit)
        return fit, late

    def _settle(self, loss: SpanLoss, fit: Fit, most: int = 100) -> Fits:
        # momentum gathers speed over a few iterations
        split = Levenberg(0, forcing=0.01, damping_floor=1e-8, stall=8, stall_factor=0.7)
        dense = Levenberg(100, forcing=0.01, damping_floor=1e-12, stall=10, stall_factor=0.7)
        rule, iterations, damping = (dense, 100, 1e-3) if self.bench.small else (split, 40, 0.1)
        for refined in rule.refine(loss, fit, self.problem.norm, min(iterations, most), pace=DampingState(damping)):
            fit = refined
            self.bench.iteration += 1
            yield fit
        return fit

    def _turn_wrong(self, loss: SpanLoss, fit: Fit) -> Fits:
        """Where little is left: signs that may be wrong, one by one, for as long as turning one helps."""
        if self.bench.dense or self.problem.drifted or not signs_tell(loss):
            return fit  # with the free affine part no sign could be wrong; where features drift, the loss tells none

        def refine(loss: SpanLoss, turned: Fit) -> Fits:
            return self._settle(loss, turned, TURNED_ITERATIONS)

        turning = Turning(refine, most=telling(len(fit.candidates)), tries=TURNS)
        while fit.loss < TURN_BELOW and not self.bench.explained(fit):
            turned = yield from turning.run(loss, fit)
            if turned is fit:
                break
            fit = yield from self._settle(loss, turned)
        return fit
