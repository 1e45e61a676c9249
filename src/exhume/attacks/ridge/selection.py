"""Selection: which candidates are worth keeping while samples are still missing.

Where no sample stands out, because coefficients are alike (logistic loss) or equations few, candidates that are refined
together come to rest in a bad minimum: a few of them at samples, the others between several. What tells them apart is
what each explains beyond all others (`removal_costs`): a blend can be replaced by its neighbours, a sample cannot. So
those that explain more than the bulk are kept, the rest is drawn anew, and all are refined again. Each sample that is
found takes its share out of the residual and its d unknowns out of the search: the problem that remains has more
equations a number than the one before, and the last samples come all at once.

Those that explain most of the bulk are kept too: none of the first samples stands out at once.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

STANDS_OUT = 3.0  # times the median of what candidates explain
STANDS_OUT_OF_GHOSTS = 5.0  # times their lower quartile, which is what counts once half of them are samples
PROMISING = 0.2  # of those that do not stand out


def worth_keeping(costs: Float[Tensor, " m"]) -> Bool[Tensor, " m"]:
    """Which candidates are kept, by what each of them explains beyond the others."""
    edge = torch.minimum(STANDS_OUT * costs.median(), STANDS_OUT_OF_GHOSTS * costs.quantile(0.25))
    kept = costs > edge
    bulk = costs[~kept]
    return kept | (costs >= bulk.quantile(1 - PROMISING)) if len(bulk) else kept
