"""Selection: which candidates are worth keeping while samples are still missing.

Where no sample stands out, because coefficients are alike (logistic loss) or equations few, candidates that are refined
together come to rest in a bad minimum: a few of them at samples, the others between several. What tells them apart is
what each explains beyond all others (`removal_costs`): a blend can be replaced by its neighbours, a sample cannot. So
those that explain more than the bulk are kept, the rest is drawn anew, and all are refined again. Each sample that is
found takes its share out of the residual and its d unknowns out of the search: the problem that remains has more
equations a number than the one before, and the last samples come all at once.

Those that explain most of the bulk are kept too: none of the first samples stands out at once.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.single_layer.levenberg import DampingState
from exhume.attacks.single_layer.pruning import removal_costs
from exhume.attacks.single_layer.search_context import Fits, SearchContext
from exhume.attacks.single_layer.span import Fit

STANDS_OUT = ((0.5, 3.0), (0.25, 5.0))
"""Quantiles of what candidates explain, and how far above one of them a sample is: while most are blends, and once half
of them are samples."""
ALIKE = 3.5  # times the median
PROMISING = 0.2  # of those that do not stand out
ITERATIONS, PAYS = 10, 1.5  # of a round; it goes on while so many make the loss fall so much


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
class Selection:
    """One round: choose, then refine."""

    bench: SearchContext

    def chosen(
        self, candidates: Float[Tensor, "m d"], count: int, generator: torch.Generator
    ) -> Float[Tensor, "count d"]:
        """Those that are worth keeping, and new ones beside them: at least one.

        New ones are random, since the eigenvectors of the residual are blends as well; where moments are blind, up to
        half of them are taken from a pool that the residual of those kept has sorted.
        """
        loss = self.bench.part(len(candidates))
        costs = removal_costs(loss.fit(candidates), loss)
        order = costs.argsort(descending=True)
        kept = candidates[order[: min(int(worth_keeping(costs).sum()), count - 1)]]
        if self.bench.blind:
            pool = self.bench.propose(self.bench.fit(kept), count, generator)
            kept = torch.cat([kept, pool[: (count - len(kept)) // 2]])
        return torch.cat([kept, self.bench.random_start(count - len(kept), generator)])

    def refine(self, fit: Fit) -> Fits:
        pace, before = DampingState(), math.inf
        while fit.loss < before / PAYS and not self.bench.explained(fit):
            before = fit.loss
            fit = yield from self.bench.refine(fit, ITERATIONS, stall=8, pace=pace)
        return fit
