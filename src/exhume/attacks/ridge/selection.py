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

from exhume.attacks.ridge.levenberg import Pace
from exhume.attacks.ridge.pruning import removal_costs
from exhume.attacks.ridge.span import Fit
from exhume.attacks.ridge.workbench import Fits, Workbench

STANDS_OUT = 3.0  # times the median of what candidates explain
STANDS_OUT_OF_GHOSTS = 5.0  # times their lower quartile, which is what counts once half of them are samples
PROMISING = 0.2  # of those that do not stand out
ITERATIONS, PAYS = 10, 1.5  # of a round; it goes on while so many make the loss fall so much


def worth_keeping(costs: Float[Tensor, " m"]) -> Bool[Tensor, " m"]:
    """Which candidates are kept, by what each of them explains beyond the others."""
    edge = torch.minimum(STANDS_OUT * costs.median(), STANDS_OUT_OF_GHOSTS * costs.quantile(0.25))
    kept = costs > edge
    bulk = costs[~kept]
    return kept | (costs >= bulk.quantile(1 - PROMISING)) if len(bulk) else kept


@dataclass(frozen=True, eq=False)
class Selection:
    """One round: choose, then refine."""

    bench: Workbench

    def chosen(
        self, candidates: Float[Tensor, "m d"], count: int, generator: torch.Generator
    ) -> Float[Tensor, "count d"]:
        """Those that are worth keeping, and new ones beside them: at least one.

        New ones are random, since the eigenvectors of the residual are blends as well; where moments are blind, half of
        them are taken from a pool that the residual of those kept has sorted.
        """
        loss = self.bench.part(len(candidates))
        kept = candidates[worth_keeping(removal_costs(loss.fit(candidates), loss))]
        missing = max(count - len(kept), 1)
        if self.bench.blind:
            kept = torch.cat([kept, self.bench.propose(self.bench.fit(kept), count, generator)[: missing // 2]])
        return torch.cat([kept, self.bench.random_start(max(count - len(kept), 1), generator)])

    def refine(self, fit: Fit) -> Fits:
        pace, before = Pace(), math.inf
        while fit.loss < before / PAYS and not self.bench.explained(fit):
            before = fit.loss
            fit = yield from self.bench.refine(fit, ITERATIONS, stall=8, pace=pace)
        return fit
