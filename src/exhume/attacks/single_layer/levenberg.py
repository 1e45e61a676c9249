"""How candidates of φ(Vx + b) are refined: Levenberg-Marquardt around the Gauss-Newton model, back to the sphere after
each step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from exhume.attacks.foundation.levenberg import DampingState, Move, Refinement
from exhume.attacks.single_layer.gauss_newton import Model, linearise, newton_move
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.split_step import split_move


@dataclass(frozen=True)
class Levenberg:
    """How candidates are refined.

    `products`: conjugate-gradient products per iteration (two passes each); 0 takes the split step with momentum
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
        refinement = Refinement[Fit, Model](
            lambda fit: fit.loss,
            lambda fit: linearise(loss, fit),
            lambda model, pace: self._try(loss, model, norm, pace),
            self.damping_floor,
            self.stall,
            self.stall_factor,
        )
        return refinement.refine(fit, iterations, until, pace or DampingState())

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
