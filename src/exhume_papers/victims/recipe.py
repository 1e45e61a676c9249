"""How a network is trained: the method, its numbers, and when to stop."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from exhume.errors import UsageError
from exhume.validation import parse_fields

Method = Literal["gd", "sgd", "adam", "closed-form"]
Stopped = Literal["target", "steps", "flat", "interrupted"]

ADAM_STEP = 1e-3


class DescentRecipe(BaseModel):
    """Full-batch gradient descent, mini-batch descent, or Adam, on the loss + (weight_decay / 2) ||weights||².

    "closed-form": the minimum itself, which only the square loss of a head on frozen layers has.

    As torch.optim has them: momentum b ← μ b + g, w ← w − η b, with the decay inside g. `batch_size`: None is the full
    batch for gd and adam, and for sgd half the samples, at most 32. `step_size`: None takes (1 − μ) / the largest
    curvature at the start (Adam: 1e-3) and halves it if the loss rises; a given one is kept. Momentum
    multiplies steps by 1 / (1 − μ) in effect, and larger ones swing over the minimum, which moves the features far
    more. `until`: None takes the loss's own. `growing` (gd, without a given step): the curvature is measured again on
    the way, so that the step grows as a logistic loss falls; large margins are then near, which a fixed step approaches
    like the logarithm of the number of steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    method: Method = "gd"
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    batch_size: int | None = Field(default=None, ge=1)
    step_size: float | None = Field(default=None, gt=0)
    until: float | None = Field(default=None, ge=0)
    steps: int = Field(default=100_000, ge=1)
    growing: bool = False
    seed: int = Field(default=0, ge=0, lt=2**63)  # of the order of the mini-batches

    @classmethod
    def parse(cls, **fields: object) -> "DescentRecipe":
        return parse_fields(cls, **fields)

    @model_validator(mode="after")
    def _fields_agree(self) -> "DescentRecipe":
        if self.method == "gd" and self.batch_size is not None:
            raise UsageError(f"expected no batch size with gd, found {self.batch_size}; sgd takes mini-batches")
        if self.method == "adam" and self.momentum:
            raise UsageError(f"expected no momentum with adam, which has its own, found {self.momentum:g}")
        if self.growing and (self.method != "gd" or self.momentum or self.step_size is not None):
            raise UsageError("expected gd without momentum or a given step size for a growing step, found others")
        if self.method == "closed-form" and (self.momentum or self.batch_size or self.step_size):
            raise UsageError("expected no momentum, batch size or step size with the closed form, found one")
        return self

    def batch(self, samples: int) -> int | None:
        """The number of samples of a mini-batch, None for all of them."""
        size = min(32, -(-samples // 2)) if self.method == "sgd" and self.batch_size is None else self.batch_size
        return None if size is None or size >= samples else size

    @property
    def monotone(self) -> bool:
        """Whether each step has to lower the loss if it is small enough."""
        return self.method == "gd" and self.momentum == 0 and self.weight_decay == 0


class TrainingStopped(KeyboardInterrupt):
    """Training was interrupted; what it had is in a checkpoint, from which the same training goes on."""


@dataclass(frozen=True)
class HistoryPoint:
    steps: int
    loss: float


@dataclass(frozen=True)
class Descent:
    """How training went."""

    loss: float
    steps: int
    step_size: float
    stopped: Stopped
    curvature: float | None
    """The largest curvature at the start; None where the step did not come from it."""
    lowered: int
    """How often the step was halved because the loss rose."""
    history: tuple[HistoryPoint, ...]
    """The loss on all samples, at the start, at steps about 1 % apart, and at the end."""

    def require_end(self) -> None:
        """Of a training that was interrupted there is nothing to show yet."""
        if self.stopped == "interrupted":
            raise TrainingStopped(f"interrupted at loss {self.loss:.2g} after {self.steps:,} steps")

    def describe(self) -> str:
        came_from = "" if self.curvature is None else f" (largest curvature {self.curvature:.3g})"
        halved = f", halved {self.lowered} times because the loss rose" if self.lowered else ""
        ending = {
            "target": "",
            "steps": "; it stopped at the number of steps",
            "flat": "; it no longer fell",
            "interrupted": "; it was interrupted",
        }[self.stopped]
        return f"loss {self.loss:.2g} after {self.steps} steps of {self.step_size:.3g}{came_from}{halved}{ending}"
