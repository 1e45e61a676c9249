"""Pruning: what the weights do not need goes, for as long as what is left, refined again, generalises as well."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation.projection import TOLERATED, removal_costs
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.pruning import COPY_COSINE, SATELLITE_COSINE, without_copies
from exhume.attacks.single_layer.search_context import Fits, SearchContext
from exhume.attacks.single_layer.signs import trimmed
from exhume.attacks.single_layer.span import Fit
from exhume.attacks.single_layer.standing_out import standing_out

T = TypeVar("T")

TOLERATED_DRIFTING = 1.1  # how much the score may rise when a candidate is removed, where features drift


@dataclass(frozen=True, eq=False)
class Removal:
    """`converged` is a loss that counts as the floor of the weights."""

    bench: SearchContext
    problem: Problem
    converged: float

    def run(self, fit: Fit) -> Fits:
        """Merge copies, then remove the cheapest for as long as the refitted loss stays where it was."""
        if not self.bench.dense:
            fit = yield from self._accept_if_as_good(fit, self.needed(fit))
        if self.problem.drifted:
            fit = yield from self._remove_drift(fit)
        for cosine in (COPY_COSINE, SATELLITE_COSINE):
            fit = yield from self._merge(fit, without_copies(fit.candidates, fit.coefficients, cosine))
        fit = yield from self._remove_cheap(fit)
        fit = yield from self._remove_needless(fit)
        known_count = self.problem.samples
        while known_count is not None and len(fit.candidates) > known_count:  # there are no more samples than that
            kept = removal_costs(fit, self.bench.part(len(fit.candidates))).argsort(descending=True)[:known_count]
            fit = yield from watching(fit, self.bench.refit(fit.candidates[kept]))
        return fit

    def _remove_drift(self, fit: Fit) -> Fits:
        """What explains the drift of the features and not a sample, all of it at once (`standing_out.py`)."""
        found = standing_out(self.bench.part(len(fit.candidates)), fit)
        if found is None or not self._fewest <= int(found.upper.sum()) < len(found.upper):
            return fit
        trial = yield from watching(fit, self.bench.refit(fit.candidates[found.upper]))
        again = standing_out(self.bench.part(len(trial.candidates)), trial)
        return trial if again is not None and bool(again.upper.all()) else fit

    def _merge(self, fit: Fit, kept: Bool[Tensor, " m"]) -> Fits:
        if not self._fewest <= int(kept.sum()) < len(kept):
            return fit
        trial = yield from watching(fit, self.bench.refit(fit.candidates[kept]))
        return trial if trial.loss <= max(10 * fit.loss, self.converged) else fit

    def _remove_cheap(self, fit: Fit) -> Fits:
        """All candidates that cost no more than one that only fits noise would, at once: most cases in one refit."""
        loss = self.bench.part(len(fit.candidates))
        kept = removal_costs(fit, loss) > self._negligible(fit)
        if int(kept.sum()) < self._fewest:
            return fit
        return (yield from self._accept_if_as_good(fit, fit.candidates[kept]))

    def _accept_if_as_good(self, fit: Fit, fewer: Float[Tensor, "fewer d"]) -> Fits:
        if torch.equal(fewer, fit.candidates):
            return fit
        trial = yield from watching(fit, self.bench.refit(fewer))
        return trial if self._as_good(trial, fit) else fit

    def _remove_needless(self, fit: Fit) -> Fits:
        """The cheapest, until the two cheapest resist; several at a time where noise hides which ones are needless."""
        resisted, several = 0, 1 if self.bench.explained(fit) else max(1, len(fit.candidates) // 4)
        fewest = self._fewest
        while len(fit.candidates) > max(fewest, resisted) and resisted < 2:
            order = removal_costs(fit, self.bench.part(len(fit.candidates))).argsort()
            keep = torch.ones(len(order), dtype=torch.bool, device=order.device)
            keep[order[resisted : resisted + min(several, len(order) - fewest)]] = False
            trial = yield from watching(fit, self.bench.refit(fit.candidates[keep]))
            if self._as_good(trial, fit):
                fit, resisted = trial, 0
            elif several > 1:
                several //= 2
            else:
                resisted += 1
        return fit

    @property
    def _fewest(self) -> int:
        """So many candidates are never pruned away: all samples, where their number is given."""
        return max(self.problem.at_least, self.problem.samples or 1)

    def needed(self, fit: Fit, at_least: float = 0.0) -> Float[Tensor, "fewer d"]:
        """Without what raises the loss by no more than noise would, or than `at_least`."""
        kept = trimmed(self.bench.part(len(fit.candidates)), fit, max(self._negligible(fit), at_least))
        return kept if len(kept) >= self._fewest else fit.candidates

    def _negligible(self, fit: Fit) -> float:
        """By how much L may rise when a candidate goes that only fits noise."""
        loss = self.bench.part(len(fit.candidates))
        return max(10 * fit.loss * min(1.0, loss.features.d / loss.equations), 10 * self.converged)

    def _as_good(self, trial: Fit, fit: Fit) -> bool:
        tolerated = TOLERATED_DRIFTING if self.problem.drifts else TOLERATED
        return self.bench.score(trial) <= max(tolerated * self.bench.score(fit), 10 * self.converged)


def watching(best: Fit, trial: Generator[Fit, None, T]) -> Generator[Fit, None, T]:
    """Runs a trial while showing the best so far: what an interruption keeps is never a half-done trial."""
    while True:
        try:
            next(trial)
        except StopIteration as end:
            return end.value
        yield best
