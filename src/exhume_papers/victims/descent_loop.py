"""The one training loop: batches, the step size, when to stop, checkpoints and resumption.

A `Trainee` holds weights and a gradient, and knows neither the clock nor the recipe's end. The loop goes in rounds: one
step for a full batch, one epoch for mini-batches. A round starts by looking at the loss on all samples:

- if it rose too far and the step was not given by the user, the step is halved and training goes back: by one step
  where each step has to lower the loss (plain gradient descent), else to the start (momentum, mini-batches, Adam);
- training ends at the target, at the number of steps, when it was asked to, or when the loss has not fallen by a
  hundredth while the number of steps doubled (rounding, weight decay).

The order of mini-batches is a function of the seed and the epoch, so a checkpoint holds weights and a few numbers, and
a training that goes on from it takes the very steps that it would have taken undisturbed.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from exhume import seeds
from exhume.checkpoint_file import check_whole, write_checkpoint
from exhume.errors import ExhumeError
from exhume.files import read_tensors
from exhume_papers.victims.private import Progress
from exhume_papers.victims.recipe import ADAM_STEP, Descent, DescentRecipe, HistoryPoint, Stopped

KIND = "training-checkpoint"
RISE = 1e-3  # relative: above the rounding of the loss
DIVERGED = 2.0  # times the loss at the start
MOST_HALVINGS = 30
MEASURED_BATCHES = 4
REMEASURED = 50  # steps between two looks at the curvature where the step may grow
FIRST_LOOK = 1000  # steps before the loss may be called flat
FLAT = 0.99

Tensors = dict[str, Tensor]


@runtime_checkable
class Trainee(Protocol):
    """Weights that can be moved along a gradient. `batch` None means all samples."""

    @property
    def samples(self) -> int: ...

    def loss(self) -> float:
        """The loss on all samples."""
        ...

    def differentiate(self, batch: Int[Tensor, " b"] | None) -> float:
        """Keeps the gradient on the batch for `move`; gives the loss on the batch."""
        ...

    def move(self, step_size: float) -> None: ...

    def curvature(self, batch: Int[Tensor, " b"] | None) -> float:
        """The largest eigenvalue of the Gauss-Newton matrix of the loss on the batch."""
        ...

    def state(self) -> Tensors:
        """All that changes: weights and the method's own memory. Not copies: the next move may change them."""
        ...

    def restore(self, state: Tensors) -> None: ...


@dataclass(frozen=True)
class Surroundings:
    """What stands around a training: who watches, where it is kept, and who may stop it.

    `guard` is entered while there are steps that a stop could lose: Ctrl-C may then ask `stop`, and acts at once before
    and after. `keep_checkpoint`: the end of training is kept too, for whoever still has to write its result down.
    """

    progress: Progress | None = None
    checkpoint: Path | None = None
    keep_checkpoint: bool = False
    guard: Callable[[], AbstractContextManager[object]] = nullcontext
    seconds_between: float = 30.0
    stop: Callable[[], bool] = lambda: False
    settings: dict[str, Any] = field(default_factory=dict)
    """What a checkpoint has to agree with; JSON values that tell this training from others."""


@dataclass
class _Position:
    """Where the loop stands; numbers only, so that it can be written down."""

    step_size: float
    curvature: float | None
    steps: int = 0
    epoch: int = 0
    lowered: int = 0
    first: float = math.inf
    last: float = math.inf
    next_look: int = FIRST_LOOK
    seen_at_look: float = math.inf
    history: list[tuple[int, float]] = field(default_factory=list)


def descend(trainee: Trainee, recipe: DescentRecipe, until: float, around: Surroundings) -> Descent:
    """Trains in place until the target, the last step, flatness or a wish to stop."""
    loop = _Loop(trainee, recipe, until, around)
    with around.guard():
        return loop.run()


class _Loop:
    def __init__(self, trainee: Trainee, recipe: DescentRecipe, until: float, around: Surroundings) -> None:
        self.trainee, self.recipe, self.until, self.around = trainee, recipe, until, around
        self.batch = recipe.batch(trainee.samples)
        self.settings = {**around.settings, "recipe": recipe.model_dump(mode="json"), "until": until}
        self.kept = {name: tensor.clone() for name, tensor in trainee.state().items()}
        self.saved = time.monotonic()
        self.at = self._resumed() or self._start()

    def run(self) -> Descent:
        while True:
            loss = self.trainee.differentiate(None) if self.batch is None else self.trainee.loss()
            if self._rose(loss):
                self._lower()
                if self.at.lowered > MOST_HALVINGS:
                    return self._given_up()
                continue
            self._accept(loss)
            reason = self._reason(loss)
            if reason is not None:
                return self._ended(loss, reason)
            self._save_now_and_then()
            self._round()

    def _round(self) -> None:
        if self.batch is None:
            if self.recipe.growing and self.at.steps and self.at.steps % REMEASURED == 0:
                self._measure_again()
            self.trainee.move(self.at.step_size)
            self.at.steps += 1
            return
        for batch in self._batches(self.at.epoch)[: self.recipe.steps - self.at.steps]:
            self.trainee.differentiate(batch)
            self.trainee.move(self.at.step_size)
            self.at.steps += 1
        self.at.epoch += 1

    def _measure_again(self) -> None:
        curvature = self.trainee.curvature(None) + self.recipe.weight_decay
        if 0 < curvature < math.inf:
            self.at.step_size = 1 / curvature

    def _batches(self, epoch: int) -> list[Tensor]:
        assert self.batch is not None, "a full batch has no order"
        # + 1: the stream itself draws the network
        seed = (seeds.derive(self.recipe.seed, "network") + 1 + epoch) % 2**63
        order = torch.randperm(self.trainee.samples, generator=torch.Generator().manual_seed(seed))
        return list(order.split(self.batch))

    def _start(self) -> _Position:
        if self.recipe.step_size is not None:
            return _Position(self.recipe.step_size, None)
        if self.recipe.method == "adam":
            return _Position(ADAM_STEP, None)
        batches: list[Tensor] | list[None] = [None] if self.batch is None else self._batches(0)[:MEASURED_BATCHES]
        curvature = max(self.trainee.curvature(batch) for batch in batches) + self.recipe.weight_decay
        if not 0 < curvature < math.inf:
            raise ExhumeError(
                f"expected a loss with a positive curvature at the start, found {curvature:g}; "
                "check the scale of the data and the initial weights, or give a step size"
            )
        return _Position((1 - self.recipe.momentum) / curvature, curvature)

    def _rose(self, loss: float) -> bool:
        if self.recipe.step_size is not None:
            if math.isfinite(loss):
                return False
            raise ExhumeError(
                f"expected training to stay finite, found overflow after {self.at.steps} steps of "
                f"{self.at.step_size:g}; give a smaller step size, or none"
            )
        if self.at.steps == 0 and not math.isfinite(loss):
            raise ExhumeError("expected a finite loss at the start, found overflow; check the scale of the data")
        limit = self.at.last * (1 + RISE) if self.recipe.monotone else self.at.first * DIVERGED
        return not loss <= limit

    def _lower(self) -> None:
        self.trainee.restore(self.kept)
        self.at.lowered += 1
        self.at.step_size /= 2
        if self.recipe.monotone:
            self.at.steps -= 1
        else:
            self.at.steps = self.at.epoch = 0
            self.at.next_look, self.at.seen_at_look = FIRST_LOOK, math.inf
            self.at.history.clear()

    def _given_up(self) -> Descent:
        if not self.recipe.monotone:
            raise ExhumeError(
                f"expected a step size at which the loss does not double, found none down to {self.at.step_size:.1g}; "
                "check the scale of the data, or give a step size"
            )
        return self._ended(self.at.last, "flat")  # the loss is at its rounding

    def _accept(self, loss: float) -> None:
        if self.at.steps == 0:
            self.at.first = loss
        self.at.last = loss
        if self.recipe.monotone and self.recipe.step_size is None:
            for name, tensor in self.trainee.state().items():
                self.kept[name].copy_(tensor)
        history = self.at.history
        if not history or self.at.steps > 1.01 * history[-1][0]:
            history.append((self.at.steps, loss))
        if self.around.progress is not None:
            self.around.progress(self.at.steps, loss)

    def _reason(self, loss: float) -> Stopped | None:
        if loss <= self.until:
            return "target"
        if self.at.steps >= self.recipe.steps:
            return "steps"
        if self.at.steps >= self.at.next_look:
            if loss > FLAT * self.at.seen_at_look:
                return "flat"
            self.at.next_look, self.at.seen_at_look = 2 * self.at.steps, loss
        if self.around.stop():
            self._save()
            return "interrupted"
        return None

    def _ended(self, loss: float, reason: Stopped) -> Descent:
        history = self.at.history
        if history[-1][0] != self.at.steps:
            history.append((self.at.steps, loss))
        if reason != "interrupted" and self.around.keep_checkpoint:
            self._save()
        elif reason != "interrupted" and self.around.checkpoint is not None:
            self.around.checkpoint.unlink(missing_ok=True)
        return Descent(
            loss=loss,
            steps=self.at.steps,
            step_size=self.at.step_size,
            stopped=reason,
            curvature=self.at.curvature,
            lowered=self.at.lowered,
            history=tuple(HistoryPoint(steps, value) for steps, value in history),
        )

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self.saved >= self.around.seconds_between:
            self._save()

    def _save(self) -> None:
        """Only ever called right after a loss was accepted: the state to go back to is the present one or the start."""
        if self.around.checkpoint is None:
            return
        numbers = asdict(self.at)
        table = torch.tensor(numbers.pop("history"), dtype=torch.float64)
        numbers["seen_at_look"] = None if math.isinf(self.at.seen_at_look) else self.at.seen_at_look
        state = {f"state.{name}": tensor for name, tensor in self.trainee.state().items()}
        meta = {"settings": self.settings, "numbers": numbers}
        write_checkpoint(self.around.checkpoint, KIND, {**state, "history": table}, meta)
        self.saved = time.monotonic()

    def _resumed(self) -> _Position | None:
        path = self.around.checkpoint
        if path is None or not path.exists():
            return None
        file = read_tensors(path, KIND)
        if file.meta.get("settings") != self.settings:
            raise ExhumeError(f"expected the checkpoint of this training at {path}, found another one's; remove it")
        try:
            check_whole(file)
            numbers = dict(file.meta["numbers"])
            if numbers["seen_at_look"] is None:
                numbers["seen_at_look"] = math.inf
            wrong = [name for name, value in numbers.items() if type(value) not in (int, float)]
            if wrong and (wrong != ["curvature"] or numbers["curvature"] is not None):
                raise TypeError(wrong[0])
            history = [(int(steps), loss) for steps, loss in file.tensors["history"].tolist()]
            position = _Position(**numbers, history=history)
            state = {name: file.tensors[f"state.{name}"] for name in self.kept}
            self.trainee.restore(state)
        except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as problem:
            raise ExhumeError(
                f"expected a whole checkpoint at {path}, found damage at {problem}; delete it"
            ) from problem
        return position
