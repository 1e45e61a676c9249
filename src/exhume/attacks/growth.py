"""Whether adding candidates still pays."""

import math
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.levenberg import Pace


@dataclass
class Growth:
    """The state of one growth from few candidates to many: what a checkpoint has to keep of it."""

    best: float = math.inf  # the lowest cross-validated loss so far
    since: int = 0  # candidates added since it last fell
    added: int = 0
    paying: bool = False  # the last stage made the loss fall so much that it is repeated
    pace: Pace = field(default_factory=Pace)

    def judge(self, score: float) -> None:
        self.since = 0 if score < 0.99 * self.best else self.since + self.added
        self.best = min(self.best, score)

    def goes_on(self, m: int, cap: int) -> bool:
        return self.paying or (m < cap and self.since <= max(4, m // 6))

    def numbers(self) -> dict[str, float]:
        best = -1.0 if math.isinf(self.best) else self.best  # JSON has no infinity
        return {
            "best": best,
            "since": self.since,
            "added": self.added,
            "paying": int(self.paying),
            "damping": self.pace.damping,
            "raise_by": self.pace.raise_by,
        }

    @classmethod
    def restored(cls, numbers: dict[str, float], velocity: Float[Tensor, "m d"] | None) -> "Growth":
        best = math.inf if numbers["best"] < 0 else numbers["best"]
        pace = Pace(numbers["damping"], numbers["raise_by"], velocity)
        return cls(best, int(numbers["since"]), int(numbers["added"]), bool(numbers["paying"]), pace)
