"""Selection: which candidates are worth keeping while samples are still missing.

Where no sample stands out, because coefficients are alike or equations few, candidates that are refined together come
to rest in a bad minimum: a few of them at samples, the others between several. What tells them apart is what each
explains beyond all others (`removal_costs`): a blend can be replaced by its neighbours, a sample cannot. A round

    keeps     those that explain more than the bulk, and the best of the bulk: at first no sample stands out
    cleans    refines them alone: what they had made up for the blends goes, and the residual shows what is missing
    grows     by the eigenvectors of its moment that leave the noise, for as long as the fit generalises better
    fills     up with eigenvectors and random rows, and refines: blends that show next time what a sample must exceed

Each sample that is found takes its share out of the residual and its d unknowns out of the search: the problem that
remains has more equations a number than the one before, and the last samples come all at once. Only cleaned residuals
point to single samples: beside blends the same eigenvectors are blends as well.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation.levenberg import DampingState
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.single_layer.proposals import moment_proposals, pooled_proposals
from exhume.attacks.single_layer.removal import watching
from exhume.attacks.single_layer.search_context import Fits, SearchContext
from exhume.attacks.single_layer.span import Fit

STANDS_OUT = ((0.5, 3.0), (0.25, 5.0))
"""Quantiles of what candidates explain, and how far above one of them a sample is: while most are blends, and once half
of them are samples."""
ALIKE = 3.5  # times the median
PROMISING = 0.2  # of those that do not stand out
CLEANING = 6  # iterations: kept candidates are near their places
ITERATIONS, PAYS = 10, 1.5  # of what is new; refinement goes on while so many make the loss fall so much
NOISE_EDGE = 1.0  # the eigenvalues of noise end here
FEW = 0.5  # of the candidates: eigenvectors that leave the noise, while each of them is close to a single sample
RANDOM = 0.5  # of the rows that fill up: the same eigenvectors alone end in the same minimum again


def worth_keeping(costs: Float[Tensor, " m"]) -> Bool[Tensor, " m"]:
    """Which candidates are kept, by what each of them explains beyond the others."""
    edge = min(times * float(costs.quantile(quantile)) for quantile, times in STANDS_OUT)
    kept = costs > edge
    bulk = (~kept).nonzero()[:, 0]
    promising = math.ceil(PROMISING * len(bulk))
    kept[bulk[costs[bulk].topk(promising).indices]] = True
    return kept


def alike(costs: Float[Tensor, " m"]) -> bool:
    """Whether hardly any candidate explains much more than the others do."""
    return float(costs.quantile(0.95)) < ALIKE * float(costs.median())


@dataclass(frozen=True, eq=False)
class Round:
    """What a round found: `grown`, which generalises best, and `filled`, which the next round chooses from."""

    grown: Fit
    filled: Fit


@dataclass(frozen=True, eq=False)
class Selection:
    """Rounds that choose, clean, grow and fill."""

    bench: SearchContext

    def run(
        self, candidates: Float[Tensor, "m d"], count: int, generator: torch.Generator
    ) -> Generator[Fit, None, Round]:
        """One round, with `count` candidates at its end, one of them new at least."""
        loss = self.bench.part(len(candidates))
        costs = removal_costs(loss.fit(candidates), loss)
        order = costs.argsort(descending=True)
        kept = candidates[order[: min(int(worth_keeping(costs).sum()), count - 1)]]
        fit = yield from self.bench.refine(self.bench.fit(kept), CLEANING, stall=CLEANING)
        grown = yield from self._grow(fit, count)
        if self.bench.explained(grown):
            return Round(grown, grown)
        base = grown if len(grown.candidates) < count else fit  # what grew to the brim without success is wrong
        new = self._fill(base, count - len(base.candidates), generator)
        filled = self.bench.fit(torch.cat([base.candidates, new]))
        filled = yield from self._refine_while_it_pays(filled)
        return Round(filled if self.bench.explained(filled) else grown, filled)

    def _grow(self, fit: Fit, count: int) -> Fits:
        score = self.bench.score(fit)
        while not self.bench.explained(fit):
            rows, outside = self._pointed_to(fit)
            new = rows[: min(outside, count - len(fit.candidates))]
            if not len(new):
                break
            grown = self.bench.fit(torch.cat([fit.candidates, new]))
            grown = yield from watching(fit, self._refine_while_it_pays(grown))
            if not self.bench.score(grown) < score:
                break
            fit, score = grown, self.bench.score(grown)
        return fit

    def _refine_while_it_pays(self, fit: Fit) -> Fits:
        pace, before = DampingState(), math.inf
        while fit.loss < before / PAYS and not self.bench.explained(fit):
            before = fit.loss
            fit = yield from self.bench.refine(fit, ITERATIONS, stall=8, pace=pace)
        return fit

    def _pointed_to(self, fit: Fit) -> tuple[Float[Tensor, "count d"], int]:
        """Eigenvectors, and how many of them leave the noise; none where so many do that they are blends."""
        loss, norm = self.bench.part(len(fit.candidates)), self.bench.problem.norm
        found = moment_proposals(loss, fit.residual, norm, NOISE_EDGE)
        blends = self.bench.blind or found.outside > FEW * len(fit.candidates)
        return (found.rows[:0], 0) if blends else (found.rows, found.outside)

    def _fill(self, fit: Fit, room: int, generator: torch.Generator) -> Float[Tensor, "room d"]:
        """Random rows, and as many of those that the residual points to."""
        rows = self.bench.random_start(room, generator)
        if self.bench.blind:
            loss, norm = self.bench.part(len(fit.candidates)), self.bench.problem.norm
            pool = pooled_proposals(loss, fit.residual, norm, generator).rows[: room // 2]
            return torch.cat([pool, rows[len(pool) :]])
        pointed = self._pointed_to(fit)[0][:room]
        drawn = torch.rand(len(pointed), generator=generator) < RANDOM
        rows[: len(pointed)] = torch.where(drawn[:, None].to(rows.device), rows[: len(pointed)], pointed)
        return rows
