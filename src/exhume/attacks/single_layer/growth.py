"""Whether adding candidates still pays."""

import math
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.levenberg import DampingState

WORTH = 0.99  # a stage pays that brings the score below this share of the best one
TRIM_BELOW = 1e-2
WORTH_DRIFTING = 0.7  # of the score at the last stage that paid, where the features drift


@dataclass
class Growth:
    """The state of one growth from few candidates to many: what a checkpoint has to keep of it."""

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

    def numbers(self) -> dict[str, float]:
        mark, best = (-1.0 if math.isinf(score) else score for score in (self.mark, self.best))  # JSON has no infinity
        return {
            "mark": mark,
            "best": best,
            "since": self.since,
            "added": self.added,
            "paying": int(self.paying),
            "damping": self.pace.damping,
            "raise_by": self.pace.raise_by,
            "trim_below": self.trim_below,
        }

    def tensors(self) -> dict[str, Tensor]:
        named = {"best_candidates": self.kept, "velocity": self.pace.velocity}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @classmethod
    def restored(cls, numbers: dict[str, float], tensors: dict[str, Tensor], drifts: bool = False) -> "Growth":
        return cls(
            drifts=drifts,
            mark=math.inf if numbers["mark"] < 0 else numbers["mark"],
            best=math.inf if numbers["best"] < 0 else numbers["best"],
            kept=tensors.get("best_candidates"),
            since=int(numbers["since"]),
            added=int(numbers["added"]),
            paying=bool(numbers["paying"]),
            pace=DampingState(numbers["damping"], numbers["raise_by"], tensors.get("velocity")),
            trim_below=numbers.get("trim_below", TRIM_BELOW),
        )
