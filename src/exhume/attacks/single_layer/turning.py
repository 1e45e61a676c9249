"""Turning: wrong signs that the other candidates have made up for.

φ(−z) differs from φ(z) by a linear term. Where a sample has a small coefficient and the wrong sign, and the linear part
of the span is not free, the others make up for that term by moving a little. No choice of signs at the places where
they stand now is better then (`signs.py`): turned alone, the candidate raises the loss tenfold, and only a few
iterations later, when the others have moved back, it is far below what it was. So a candidate is turned, all are
refined, and the better of the two is kept.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.single_layer.removal import watching
from exhume.attacks.single_layer.search_context import Fits
from exhume.attacks.single_layer.span import Fit, SpanLoss

TELLING, TELLING_EACH = 100.0, 2.0  # times the loss, and for each candidate


def telling(m: int) -> float:
    """Times the loss: one of m candidates that explains more would have left more behind, had its sign been wrong.

    What others cannot make up for is a share of it that falls with their number: one part in m / 2, as measured for
    d = 60 and 10 to 80 candidates.
    """
    return max(TELLING, TELLING_EACH * m)


@dataclass(frozen=True)
class Turning:
    """Which candidates are tried: at most `tries` of those that explain between `ghost` and `most` times the loss.

    One is kept turned if `refine` then brings the loss below `pays` times what it was.
    """

    refine: Callable[[SpanLoss, Fit], Fits]
    ghost: float = 0.0
    most: float = math.inf
    tries: int = 10**9
    pays: float = 0.5

    def run(self, loss: SpanLoss, fit: Fit) -> Fits:
        """The fit with one candidate turned; the same fit where none should be. Those that explain least come first."""
        costs = removal_costs(fit, loss)
        likely = (costs > self.ghost * fit.loss) & (costs < self.most * fit.loss)
        order = costs.where(likely, costs.new_tensor(math.inf)).argsort()[: min(int(likely.sum()), self.tries)]
        for index in order.tolist():
            turned = fit.candidates.clone()
            turned[index] *= -1
            trial = yield from watching(fit, self.refine(loss, loss.fit(turned)))
            if trial.loss < self.pays * fit.loss:
                return trial
        return fit


def signs_tell(loss: SpanLoss) -> bool:
    """Whether x and −x have features that differ by a linear term, so that a sign can be wrong in this way."""
    return loss.features.activation.linear_plus_even and loss.features.bias is None
