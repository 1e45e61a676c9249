"""Whether adding candidates still pays."""

import math
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.levenberg import Pace


@dataclass
class Growth:
    """The state of one growth from few candidates to many: what a checkpoint has to keep of it."""

    best: float = math.inf  # the lowest score so far
    kept: Float[Tensor, "m d"] | None = None  # the candidates that had it
    since: int = 0  # candidates added since it last fell
    added: int = 0
    paying: bool = False  # the last stage made the loss fall so much that it is repeated
    pace: Pace = field(default_factory=Pace)

    def judge(self, score: float, candidates: Float[Tensor, "m d"]) -> None:
        self.since = 0 if score < 0.99 * self.best else self.since + self.added
        if score < self.best:
            self.best, self.kept = score, candidates

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

    def tensors(self) -> dict[str, Tensor]:
        named = {"best_candidates": self.kept, "velocity": self.pace.velocity}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @classmethod
    def restored(cls, numbers: dict[str, float], tensors: dict[str, Tensor]) -> "Growth":
        return cls(
            best=math.inf if numbers["best"] < 0 else numbers["best"],
            kept=tensors.get("best_candidates"),
            since=int(numbers["since"]),
            added=int(numbers["added"]),
            paying=bool(numbers["paying"]),
            pace=Pace(numbers["damping"], numbers["raise_by"], tensors.get("velocity")),
        )
