"""The published attack: gradient descent with momentum on the projected loss of Eq. 11.

    w ← μ w + ∂L/∂X̂          heavy ball, μ = 0.9; w is not projected on the sphere's tangent
    X̂ ← X̂ − η w
    x̂_i ← norm · x̂_i / ||x̂_i||

The rows start as i.i.d. standard Gaussian vectors; the run ends when L ≤ 1e-7. L is normalised by ||θ||², and the
published steps (20 on the synthetic sphere, 2,000 on CIFAR-10, 8,000 on Tiny-ImageNet) belong to that normalisation.
For networks it is the same loss and the same steps, with gradients through the network.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.given import of_the_head
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.modules.case import ModuleCase, ModuleMethod
from exhume.attacks.modules.problem import ModuleProblem
from exhume.attacks.single_layer.method import RidgeMethod
from exhume.attacks.single_layer.problem import Problem
from exhume.errors import UsageError
from exhume.observation import Observation

# dimension of the data -> step, as published (d = 100 stands for the synthetic cases, d = 30 among them)
_PUBLISHED_STEPS = ((100, 20.0), (3072, 2000.0), (12288, 8000.0))


def published_step(d: int) -> float:
    """The published step at the published dimensions, and a power law between two of them.

    >>> published_step(30), published_step(100), round(published_step(3072)), round(published_step(12288))
    (20.0, 20.0, 2000, 8000)
    """
    if d <= _PUBLISHED_STEPS[0][0]:
        return _PUBLISHED_STEPS[0][1]
    for (d_low, low), (d_high, high) in itertools.pairwise(_PUBLISHED_STEPS):
        if d <= d_high or d_high == _PUBLISHED_STEPS[-1][0]:
            return low * math.exp(math.log(high / low) * math.log(d / d_low) / math.log(d_high / d_low))
    raise AssertionError("the loop returns on its last pair")


Evaluation = tuple[float, Callable[[], Tensor]]
"""The loss at some candidates, and its gradient there, which costs a pass only if it is asked for."""


@dataclass(frozen=True)
class _Descent:
    """The rule itself, whatever the features."""

    step_size: float | None = option(None, "its step; default: as published for this d.", name="step")
    momentum: float = 0.9
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        if self.step_size is not None and not 0 < self.step_size < math.inf:
            raise UsageError(f"expected a positive step, found {self.step_size}")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"expected a momentum from 0 to below 1, found {self.momentum}")
        if not 0 <= self.tolerance < math.inf:
            raise UsageError(f"expected a tolerance from 0, found {self.tolerance}")

    def descend(
        self,
        problem: Problem | ModuleProblem,
        evaluate: Callable[[Tensor], Evaluation],
        iterations: int,
        resume: State | None,
    ) -> Iterator[Step]:
        """The iterates, from the Gaussian start or from where a checkpoint left off, to convergence or the limit."""
        d, counter = problem.loss.features.d, problem.loss.counter
        norm = problem.norm or math.sqrt(d)
        step_size = self.step_size or published_step(d)
        state = resume or _start(problem, norm)
        candidates, velocity = state.tensors["candidates"], state.tensors["velocity"]
        loss, gradient = evaluate(candidates)
        if resume:
            counter.total = resume.numbers["passes"]
        for iteration in range(int(state.numbers["iteration"]), iterations + 1):
            numbers = {"iteration": iteration, "passes": counter.total}
            state = State({"candidates": candidates, "velocity": velocity}, numbers)
            yield Step(iteration, candidates, loss, state)
            if loss <= self.tolerance or iteration == iterations:
                return
            velocity = self.momentum * velocity + gradient()
            candidates = to_norm(candidates - step_size * velocity, norm)
            loss, gradient = evaluate(candidates)


def _start(problem: Problem | ModuleProblem, norm: float) -> State:
    if problem.samples is None:
        raise UsageError("expected the number of samples for the published attack, found none; give --samples N")
    shape = (problem.samples, problem.loss.features.d)
    rows = torch.randn(shape, generator=problem.generator(), dtype=torch.float64)
    candidates = to_norm(rows, norm).to(problem.dtype).to(problem.device)
    return State({"candidates": candidates, "velocity": torch.zeros_like(candidates)}, {"iteration": 0})


@dataclass(frozen=True)
class HeavyBall(_Descent, RidgeMethod):
    """Hyperparameters of the published attack.

    `inactive_slope` is a surrogate of the authors' released code, which uses 0.02 for the slope of an inactive ReLU;
    the paper's own gradient has 0.
    """

    inactive_slope: float = option(0.0, "slope where phi' is 0 (0.02: a surrogate).")
    iterations: int = option(60_000, "at most so many.")

    name: ClassVar[str] = "heavy-ball"
    audit_place: ClassVar[int | None] = 50
    shares_rows: ClassVar[bool] = True
    composition: ClassVar[Composition] = Composition(
        features="φ(Vx + b), the last layer's",
        target="its weights, or their change",
        coefficients="free, eliminated",
        parametrisation="rows at their norm",
        solver="gradient descent with momentum",
        knowledge="the last layer, what is before it, and n",
        published="Iurada et al. 2025",
    )
    needs_samples = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.inactive_slope < math.inf:
            raise UsageError(f"expected an inactive slope from 0, found {self.inactive_slope}")
        if self.iterations < 1:
            raise UsageError(f"expected at least 1 iteration, found {self.iterations}")

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        if samples is None or observation.features.is_network:
            return ()
        return (PlannedAttack(cls.name, "The published attack, which has to be told n.", seed, samples),)

    @classmethod
    def why_not(cls, observation: Observation, no_silence: str | None) -> str:
        return cls.needs if observation.features.is_network else "It has to be told n, which was not given (--samples)."

    def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
        def evaluate(candidates: Tensor) -> Evaluation:
            fit = problem.loss.fit(candidates)
            return fit.loss, lambda: problem.loss.gradient(fit, self.inactive_slope)

        return self.descend(problem, evaluate, self.iterations, resume)


@dataclass(frozen=True)
class ModuleHeavyBall(_Descent, ModuleMethod):
    """The same attack on the penultimate features of any network; where norms are free it takes √d, as published."""

    iterations: int = option(60_000, "at most so many.")

    name: ClassVar[str] = "heavy-ball"
    composition: ClassVar[Composition] = HeavyBall.composition
    needs_samples = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 1:
            raise UsageError(f"expected at least 1 iteration, found {self.iterations}")

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        """None in audits: it takes far longer than quasi-Newton on the same loss."""
        return ()

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[ModuleProblem]:
        """Neither smooth pictures nor the first layer's span are made use of."""
        case = ModuleCase.open(observation, seed, held_out, resources)
        return replace(case, given=of_the_head(observation), facts={})

    def steps(self, problem: ModuleProblem, resume: State | None = None) -> Iterator[Step]:
        def evaluate(candidates: Tensor) -> Evaluation:
            fit, gradient = problem.loss.fit_with_gradient(candidates)
            return fit.loss, lambda: gradient

        return self.descend(problem, evaluate, self.iterations, resume)
