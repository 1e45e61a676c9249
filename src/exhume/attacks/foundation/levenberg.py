"""Levenberg-Marquardt around any model of a loss: damping by gain ratio, and no step uphill.

The gain ratio compares what a step gained with what its model promised. Good steps lower the damping smoothly
(Nielsen's rule, at most by a factor 3), a step that would raise the loss is refused and the damping raised by growing
factors.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float
from torch import Tensor

REFUSALS = 7


@dataclass(frozen=True, eq=False, repr=False)
class Move:
    """A proposed change of the candidates, and by how much the model says that the loss will fall."""

    change: Float[Tensor, "m d"]
    predicted: float


@dataclass(repr=False)
class DampingState:
    """What one iteration hands to the next, besides the candidates: refinement goes on from it as if never stopped."""

    damping: float = 0.1
    raise_by: float = 2.0
    velocity: Float[Tensor, "m d"] | None = None

    def accepted(self, gain: float, velocity: Float[Tensor, "m d"], floor: float) -> None:
        self.damping = max(self.damping * max(1 / 3, 1 - (2 * min(gain, 1.0) - 1) ** 3), floor)
        self.raise_by, self.velocity = 2.0, velocity

    def refused(self) -> None:
        self.damping, self.raise_by, self.velocity = self.damping * self.raise_by, self.raise_by * 2, None


@runtime_checkable
class HasCandidates(Protocol):
    @property
    def candidates(self) -> Tensor: ...


F = TypeVar("F", bound=HasCandidates)
M = TypeVar("M")


@dataclass(frozen=True)
class Refinement(Generic[F, M]):
    """What is minimised, how it is modelled at a fit, and what a step of the model leads to.

    It gives up where `value` fell by less than `stall_factor` over `stall` iterations.
    """

    value: Callable[[F], float]
    linearise: Callable[[F], M]
    attempt: Callable[[M, DampingState], tuple[Move, F]]
    damping_floor: float
    stall: int
    stall_factor: float

    def refine(self, fit: F, iterations: int, until: float, pace: DampingState) -> Iterator[F]:
        """Yields the fit after each accepted or refused step; the value never rises. The last one is the result."""
        history, refused = [self.value(fit)], 0
        model: M | None = None
        for _ in range(iterations):
            now = history[-1]
            if now <= until or refused >= REFUSALS or not math.isfinite(now):
                return
            model = self.linearise(fit) if model is None else model
            move, trial = self.attempt(model, pace)
            if self.value(trial) < now:
                gain = (now - self.value(trial)) / max(move.predicted, 1e-30)
                pace.accepted(gain, trial.candidates - fit.candidates, self.damping_floor)
                fit, model, refused = trial, None, 0
            else:
                pace.refused()
                refused += 1
            history.append(self.value(fit))
            yield fit
            if len(history) > self.stall and history[-1] > self.stall_factor * history[-1 - self.stall]:
                return
