"""Whether adding candidates still pays."""

import math
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.levenberg import DampingState
from exhume.attacks.foundation.state import Lasting

WORTH = 0.99  # a stage pays that brings the score below this share of the best one
TRIM_BELOW = 1e-2
WORTH_DRIFTING = 0.7  # of the score at the last stage that paid, where the features drift


@dataclass(repr=False)
class Growth:
    """The state of one growth from few candidates to many."""

    drifts: bool = False  # every candidate explains a little more of the drift: only large gains pay
    mark: float = math.inf  # the score that a stage which pays has to beat
    best: float = math.inf  # the lowest score so far
    kept: Float[Tensor, "m d"] | None = None  # the candidates that had it
    since: int = 0  # candidates added since it last fell
    added: int = 0
    paying: bool = False  # the last stage made the loss fall so much that it is repeated
    pace: DampingState = field(default_factory=DampingState)
    trim_below: float = TRIM_BELOW  # a loss from which candidates are looked through for needless ones

    def judge(self, score: float, candidates: Float[Tensor, "m d"]) -> None:
        paid = score < (WORTH_DRIFTING if self.drifts else WORTH) * self.mark
        self.since = 0 if paid else self.since + self.added
        if paid or not self.drifts:
            self.mark = min(self.mark, score)
        if score < self.best:
            self.best, self.kept = score, candidates

    def goes_on(self, m: int, cap: int) -> bool:
        return self.paying or (m < cap and self.since <= max(4, m // 6))


GROWTH = Lasting(
    *("mark", "best", "since", "added", "paying", "trim_below"),
    best_candidates="kept",
    damping="pace.damping",
    raise_by="pace.raise_by",
    velocity="pace.velocity",
)
"""What a checkpoint has to keep of it."""
