"""L-BFGS on the projected loss of any features, one resumable iteration after the other.

The inverse Hessian is built from the last steps and changes of the gradient (two-loop recursion of Nocedal). A step
length must lower the loss enough (Armijo) and leave the slope flatter than it was (weak Wolfe); it is found by
bracketing and bisection, which is also sound where ReLUs make the loss kinked. So the loss never rises, and each pair
has positive curvature. Curvature goes through the coordinates of `coordinates.py`: that is the preconditioner.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

ARMIJO, WOLFE = 1e-4, 0.9
TRIALS = 25
FLAT = 1e-8  # a cosine between step and change of gradient below which rounding may have made their product
STALL = 20  # iterations between two looks at how much was gained


@runtime_checkable
class HasLoss(Protocol):
    """A fit: whatever else its owner needs is in it too."""

    @property
    def loss(self) -> float: ...


F = TypeVar("F", bound=HasLoss)
F_co = TypeVar("F_co", bound=HasLoss, covariant=True)


@runtime_checkable
class Objective(Protocol[F_co]):
    """What is minimised: a fit at candidates, and a gradient."""

    def fit_with_gradient(self, candidates: Tensor) -> tuple[F_co, Tensor]: ...


@runtime_checkable
class Chart(Protocol):
    """Coordinates z of candidates."""

    def rows_at(self, z: Tensor) -> Tensor: ...

    def gradient_at(self, z: Tensor, gradient: Tensor) -> Tensor: ...

    def coordinates_of(self, candidates: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False, repr=False)
class Point(Generic[F]):
    """Coordinates with the loss and its gradient there."""

    z: Float[Tensor, "m d"]
    fit: F
    gradient: Float[Tensor, "m d"]


@dataclass(frozen=True, eq=False, repr=False)
class Run(Generic[F]):
    """A run of L-BFGS between two iterations: everything it needs to go on is in z and the pairs.

    `mark` is the loss at the last look at the gain. `steps` and `changes` are the pairs, oldest first.
    """

    point: Point[F]
    steps: Float[Tensor, "pairs m d"]
    changes: Float[Tensor, "pairs m d"]
    iteration: int = 0
    mark: float = math.inf


@dataclass(frozen=True)
class QuasiNewton:
    """`pairs`: how many are remembered. `gain`: end when STALL iterations lower the loss by less than this share."""

    pairs: int = 20
    gain: float = 0.01

    def start(self, loss: Objective[F], coordinates: Chart, z: Float[Tensor, "m d"]) -> Run[F]:
        none = z.new_zeros(0, *z.shape)
        return Run(evaluate(loss, coordinates, z), none, none)

    def refine(self, loss: Objective[F], coordinates: Chart, run: Run[F], iterations: int) -> Iterator[Run[F]]:
        """The run after each iteration, up to `iterations` in all; ends where nothing more is gained."""
        while run.iteration < iterations:
            if run.iteration % STALL == 0:
                if run.point.fit.loss > (1 - self.gain) * run.mark:
                    return
                run = replace(run, mark=run.point.fit.loss)
            after = self._iterate(loss, coordinates, run)
            if after is None:
                return
            run = after
            yield run

    def _iterate(self, loss: Objective[F], coordinates: Chart, run: Run[F]) -> Run[F] | None:
        """One iteration; where the model is no longer a descent, once more from the gradient alone."""
        for steps, changes in ((run.steps, run.changes), (run.steps[:0], run.changes[:0])):
            direction = descend(run.point.gradient, steps, changes)
            slope = _inner(direction, run.point.gradient)
            if not slope < 0:
                continue
            first = 1.0 if len(steps) else _first_length(run.point, direction)
            reached = _search(loss, coordinates, run.point, direction, slope, first)
            if reached is not None:
                step, change = reached.z - run.point.z, reached.gradient - run.point.gradient
                if _inner(step, change) > FLAT * float(step.norm() * change.norm()):
                    steps = torch.cat([steps, step[None]])[-self.pairs :]
                    changes = torch.cat([changes, change[None]])[-self.pairs :]
                return Run(reached, steps, changes, run.iteration + 1, run.mark)
        return None


def evaluate(loss: Objective[F], coordinates: Chart, z: Float[Tensor, "m d"]) -> Point[F]:
    fit, gradient = loss.fit_with_gradient(coordinates.rows_at(z))
    return Point(z, fit, coordinates.gradient_at(z, gradient))


def descend(
    gradient: Float[Tensor, "m d"], steps: Float[Tensor, "pairs m d"], changes: Float[Tensor, "pairs m d"]
) -> Float[Tensor, "m d"]:
    """−H⁻¹ times the gradient, by the two-loop recursion."""
    weights = []
    for step, change in zip(steps.flip(0), changes.flip(0), strict=True):
        weight = _inner(step, gradient) / _inner(step, change)
        gradient = gradient - weight * change
        weights.append(weight)
    if len(steps):
        gradient = gradient * (_inner(steps[-1], changes[-1]) / _inner(changes[-1], changes[-1]))
    for step, change, weight in zip(steps, changes, reversed(weights), strict=True):
        gradient = gradient + (weight - _inner(change, gradient) / _inner(step, change)) * step
    return -gradient


def _search(
    loss: Objective[F],
    coordinates: Chart,
    point: Point[F],
    direction: Float[Tensor, "m d"],
    slope: float,
    length: float,
) -> Point[F] | None:
    """A point along the direction where both conditions hold, or at least the first one; None if there is none."""
    low, high, best = 0.0, math.inf, None
    for _ in range(TRIALS):
        trial = evaluate(loss, coordinates, point.z + length * direction)
        if not trial.fit.loss <= point.fit.loss + ARMIJO * length * slope or trial.fit.loss == point.fit.loss:
            high = length
        elif _inner(trial.gradient, direction) < WOLFE * slope:
            low, best = length, trial
        else:
            return trial
        length = 2 * length if math.isinf(high) else (low + high) / 2
        if best is not None and high - low < 0.05 * high:
            break
    return best


def _first_length(point: Point[F], direction: Float[Tensor, "m d"]) -> float:
    """Without curvature: a move of a tenth of the coordinates' own size."""
    return 0.1 * float(point.z.norm()) / max(float(direction.norm()), torch.finfo(direction.dtype).tiny)


def _inner(left: Tensor, right: Tensor) -> float:
    return float((left.double() * right.double()).sum())
