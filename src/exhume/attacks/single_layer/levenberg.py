"""Levenberg-Marquardt around the Gauss-Newton model: damping by gain ratio, retraction to the sphere, no step uphill.

The gain ratio compares what a step gained with what its model promised. Good steps lower the damping smoothly
(Nielsen's rule, at most by a factor 3), a step that would raise the loss is refused and the damping raised by growing
factors.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.gauss_newton import Model, Move, linearise, newton_move
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.split_step import split_move

REFUSALS = 7


@dataclass
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


@dataclass(frozen=True)
class Levenberg:
    """How candidates are refined.

    `products`: conjugate-gradient products an iteration (two passes each); 0 takes the split step with momentum
    instead, which needs none. `stall`: give up where the loss fell by less than `stall_factor` over so many iterations.
    """

    products: int = 10
    forcing: float = 0.1
    damping_floor: float = 1e-4
    stall: int = 10**9
    stall_factor: float = 0.9

    def refine(
        self,
        loss: SpanLoss,
        fit: Fit,
        norm: float,
        iterations: int,
        until: float = 0.0,
        pace: DampingState | None = None,
    ) -> Iterator[Fit]:
        """Yields the fit after each accepted or refused step; the loss never rises. The last one is the result."""
        pace = pace or DampingState()
        history, refused = [fit.loss], 0
        model: Model | None = None
        for _ in range(iterations):
            if fit.loss <= until or refused >= REFUSALS or not math.isfinite(fit.loss):
                return
            model = model or linearise(loss, fit)
            move, trial = self._try(loss, model, norm, pace)
            if trial.loss < fit.loss:
                gain = (fit.loss - trial.loss) / max(move.predicted, 1e-30)
                pace.accepted(gain, trial.candidates - fit.candidates, self.damping_floor)
                fit, model, refused = trial, None, 0
            else:
                pace.refused()
                refused += 1
            history.append(fit.loss)
            yield fit
            if len(history) > self.stall and history[-1] > self.stall_factor * history[-1 - self.stall]:
                return

    def _try(self, loss: SpanLoss, model: Model, norm: float, pace: DampingState) -> tuple[Move, Fit]:
        if self.products:
            move = newton_move(loss, model, pace.damping, self.products, self.forcing)
            return move, _evaluate(loss, model.fit, move, norm)
        move = split_move(loss, model, pace.damping, pace.velocity)
        trial = _evaluate(loss, model.fit, move, norm)
        if pace.velocity is not None and not trial.loss < model.fit.loss:  # momentum may overshoot: then without it
            move = split_move(loss, model, pace.damping)
            trial = _evaluate(loss, model.fit, move, norm)
        return move, trial


def _evaluate(loss: SpanLoss, fit: Fit, move: Move, norm: float) -> Fit:
    moved = fit.candidates + move.change
    if not torch.isfinite(moved).all():
        return fit  # counts as no gain: the step is refused
    return loss.fit(loss.retracted(moved, norm))
