"""Levenberg-Marquardt on what training from a guess leaves unexplained of the change of the weights.

The unknowns z are the samples, and their targets where labels are not known. With the residual r = (W(T) − F(z)) ⊙ s,
s the inverse size of each parameter's change and 0 where weights are held out, each iteration solves

    (Jᵀ R J + λ c I) dz = Jᵀ R r,        R = 1 / (1 + r² / q²),  q = 2 median |r|,

by conjugate gradients. R are the weights of a Cauchy loss: a wrong gate or a gradient of the wrong sign puts single
weights far off, and least squares would follow these. c is the mean of the diagonal of Jᵀ R J, by one random probe.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import Stacked, conjugate_gradients, dot
from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.replay.optimisers import Flat
from exhume.attacks.replay.unrolled import LinearisedTraining, Path, Smoothing, Training

OUTLYING = 2.0  # q, in medians: residuals beyond it count less and less
LEAST_DAMPING, MOST_DAMPING = 1e-7, 1e4
SOLVED = 1e-6  # of the squared gradient: what conjugate gradients may leave
ATTEMPTS = 3  # at a step, with more damping each


@dataclass(frozen=True, eq=False, repr=False)
class Guess(Stacked):
    """Samples and their targets."""

    inputs: Float[Tensor, "n d"]
    targets: Float[Tensor, "n k"]


@dataclass(frozen=True, eq=False, repr=False)
class ReplayLoss:
    """`end` is W(T); `scale` is s; `seen`: input columns that ever changed the first layer; the others are zero.

    `labels_known`: targets stay as they are. A pass of `counter` is a training."""

    training: Training
    end: Flat
    scale: Flat
    seen: Bool[Tensor, " d"]
    labels_known: bool
    counter: PassCounter = field(default_factory=PassCounter)

    @property
    def passes(self) -> float:
        return self.counter.total

    @property
    def size(self) -> float:
        """||(W(T) − W(0)) ⊙ s||."""
        return float(((self.end - self.training.start) * self.scale).norm())

    def unexplained(self, end: Flat) -> float:
        """The share of the change that is left, as a ratio of norms."""
        return float(((self.end - end) * self.scale).norm()) / self.size

    def share(self, guess: Guess) -> float:
        """Of the training itself, without smoothing."""
        self.counter.total += 1
        return self.unexplained(self.training.end(guess.inputs, guess.targets))

    def free(self, step: Guess) -> Guess:
        """A gradient, with zeros where nothing is unknown."""
        targets = step.targets
        if self.labels_known:
            targets = torch.zeros_like(targets)
        elif self.training.network.loss == "cross-entropy":
            targets = targets - targets.mean(dim=1, keepdim=True)  # shares of one
        return Guess(step.inputs * self.seen.to(step.inputs.dtype), targets)


@dataclass(frozen=True, eq=False, repr=False)
class SmoothedTraining:
    """What is fitted in a stage: the training, smoothed, along a guide or by itself."""

    loss: ReplayLoss
    smoothing: Smoothing
    guide: Path | None

    def at(self, guess: Guess) -> LinearisedTraining:
        self.loss.counter.total += 1
        return self.loss.training.linearise(guess.inputs, guess.targets, self.smoothing, self.guide)

    def residual(self, point: LinearisedTraining) -> Flat:
        return (self.loss.end - point.end) * self.loss.scale


@dataclass(frozen=True, eq=False)
class Fitted:
    """`left`: the share that the model leaves unexplained; `moved`: whether the last step was taken."""

    guess: Guess
    left: float
    damping: float
    moved: bool = True


def levenberg(
    model: SmoothedTraining, guess: Guess, damping: float, iterations: int, products: int, generator: torch.Generator
) -> Iterator[Fitted]:
    """At most so many iterations of at most so many products each; ends early where no step lowers the loss.

    This is no `foundation.levenberg.Refinement`: the weights R, and with them the loss that must not rise, are another
    one in each iteration, so a step has no value to be compared with that of the iteration before.
    """
    loss, point = model.loss, model.at(guess)
    residual = model.residual(point)
    for _ in range(iterations):
        used = residual[loss.scale > 0].abs()
        edge = OUTLYING * float(used[used > 0].median()) if bool((used > 0).any()) else 0.0
        if edge == 0:
            return
        weights = 1 / (1 + (residual / edge) ** 2)
        before = _cauchy(residual, edge)
        normal = _Normal(model, point, weights)
        downhill = normal.pulled(weights * residual)
        size = normal.diagonal(guess, generator)
        moved = False
        for _ in range(ATTEMPTS):
            step = normal.solve(downhill, damping * size, products)
            trial = guess + step
            there = model.at(trial)
            left = model.residual(there)
            if _cauchy(left, edge) < before:
                guess, point, residual, moved = trial, there, left, True
                damping = max(damping / 4, LEAST_DAMPING)
                break
            damping = min(damping * 8, MOST_DAMPING)
        yield Fitted(guess, float(residual.norm()) / loss.size, damping, moved)
        if not moved:
            return


@dataclass(frozen=True, eq=False, repr=False)
class _Normal:
    """Jᵀ R J at a point."""

    model: SmoothedTraining
    point: LinearisedTraining
    weights: Flat

    def pushed(self, step: Guess) -> Flat:
        self.model.loss.counter.total += 1
        targets = None if self.model.loss.labels_known else step.targets
        return self.point.push(step.inputs, targets) * self.model.loss.scale

    def pulled(self, residual: Flat) -> Guess:
        self.model.loss.counter.total += 1
        return self.model.loss.free(Guess(*self.point.pull(residual * self.model.loss.scale)))

    def diagonal(self, like: Guess, generator: torch.Generator) -> float:
        def draw(values: Tensor) -> Tensor:
            return torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)

        probe = self.model.loss.free(Guess(draw(like.inputs), draw(like.targets)))
        return float((self.weights * self.pushed(probe).square()).sum() / dot(probe, probe))

    def solve(self, right: Guess, damping: float, products: int) -> Guess:
        def times(along: Guess) -> Guess:
            return self.pulled(self.weights * self.pushed(along)) + damping * along

        return conjugate_gradients(times, right, products, SOLVED).x


def _cauchy(residual: Flat, edge: float) -> float:
    return float(torch.log1p((residual / edge) ** 2).double().sum())
