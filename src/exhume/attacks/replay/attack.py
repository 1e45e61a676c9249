"""Training replayed: the samples are found that, trained on by the declared recipe, end at the published weights.

It needs the whole network before and after training and the recipe, and no form of the optimiser: what Adam does to a
gradient is replayed as well. `annealing.py` has the search, `fitting.py` the solver, `case.py` the verdict.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.replay.annealing import FIRST_DAMPING, Stage, fit_stage, random_start, stage
from exhume.attacks.replay.case import EXPLAINED, ReplayCase, ReplayProblem, training_of
from exhume.attacks.replay.fitting import Guess
from exhume.attacks.single_layer.memory_plan import PROCESS_BYTES
from exhume.features.gradient import whole_module
from exhume.network_ends import NetworkEnds
from exhume.observation import Observation

LEAST, MOST = 1e-5, 1e-1  # dampings that a stage may begin with, whatever the last one ended with


@dataclass(frozen=True)
class Replay(Method[ReplayProblem]):
    """`iterations` of the fit in all; a search whose fit is at rounding ends before."""

    iterations: int = option(250, "at most so many.")

    name: ClassVar[str] = "replay"
    page: ClassVar[str] = "replay.md"
    audit_place: ClassVar[int | None] = 70
    needs: ClassVar[str] = (
        "It needs a dense ReLU network before and after training (--initial), the recipe of its training "
        "(--recipe-file) and the number of samples."
    )
    composition: ClassVar[Composition] = Composition(
        features="the training itself, step by step",
        target="all weights after training",
        coefficients="none: the recipe says them",
        parametrisation="samples, and targets where labels are not known",
        solver="smoothing that is taken back, Levenberg-Marquardt",
        knowledge="the network before and after training, the recipe, n",
        published="here; for SGD: SimuDy (Tian et al. 2025)",
    )
    through_features: ClassVar[bool] = False
    needs_samples = True

    @classmethod
    def refusal(cls, outline: Outline) -> str | None:
        if not outline.replayable:
            return f"expected a network with its recipe for --method replay, found none. {cls.needs}"
        return None

    @classmethod
    def broken_by(cls, observation: Observation) -> frozenset[str]:
        """What a recipe in numbers cannot say: chance that is drawn anew at every step."""
        return frozenset({"augmentation", "dropout", "dp-sgd"})

    @classmethod
    def view(cls, observation: Observation) -> Observation:
        return with_ends(observation)

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        recipe = observation.recipe
        if cls.refusal(Outline.of(observation)) or recipe is None or (samples is None and recipe.labels is None):
            return ()
        return (PlannedAttack(cls.name, f"The declared training is replayed: {recipe.described}.", seed, samples),)

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        if observation.ends is None or observation.recipe is None:
            return 0
        return PROCESS_BYTES + training_of(observation, dtype, torch.device("cpu")).least_bytes

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[ReplayProblem]:
        return ReplayCase.open(observation, seed, held_out, resources)

    def steps(self, problem: ReplayProblem, resume: State | None = None) -> Iterator[Step]:
        """One step per iteration of the fit, the best guess last. A search that was stopped goes on from its stage."""
        loss = problem.loss
        if resume is None:
            start = random_start(loss, problem.labels, problem.generator(0))
            now = _Place(start, start, loss.share(start), loss.passes)
            left = now.least
        else:
            now = _restored(resume)
            left = loss.share(now.guess)
            loss.counter.total = now.passes
        yield Step(now.iteration, _columns(now.guess), left**2, now.state, _notes(stage(now.stage), left))
        while now.iteration < self.iterations and left > EXPLAINED / 10:
            own, guess, damping, iteration = stage(now.stage), now.guess, now.damping, now.iteration
            for fitted in fit_stage(loss, own, guess, damping, problem.generator(now.stage + 1)):
                guess, damping, iteration = fitted.guess, fitted.damping, iteration + 1
                yield Step(iteration, _columns(guess), fitted.left**2, now.state, _notes(own, left))
            left = loss.share(guess)
            best, least = (guess, left) if left < now.least else (now.best, now.least)
            after, within = max(iteration, now.iteration + 1), min(max(damping, LEAST), MOST)
            now = _Place(guess, best, least, loss.passes, after, within, now.stage + 1)
        yield Step(now.iteration + 1, _columns(now.best), now.least**2, now.state, _notes(stage(now.stage), now.least))


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the search is, at the beginning of a stage. `least` is what the best guess so far leaves."""

    guess: Guess
    best: Guess
    least: float
    passes: float
    iteration: int = 0
    damping: float = FIRST_DAMPING
    stage: int = 0

    @property
    def state(self) -> State:
        numbers = {"iteration": self.iteration, "damping": self.damping, "stage": self.stage}
        numbers |= {"least": self.least, "passes": self.passes}
        tensors = {"inputs": self.guess.inputs, "targets": self.guess.targets}
        return State(tensors | {"best_inputs": self.best.inputs, "best_targets": self.best.targets}, numbers)


def _columns(guess: Guess) -> Tensor:
    return torch.cat([guess.inputs, guess.targets], dim=1)


def _notes(own: Stage, left: float) -> dict[str, float]:
    """`unexplained`: of the training itself, when the stage began."""
    return {"sigma": own.sigma, "guided": float(own.guided), "unexplained": left}


def _restored(state: State) -> _Place:
    tensors, numbers = state.tensors, state.numbers
    guess, best = Guess(tensors["inputs"], tensors["targets"]), Guess(tensors["best_inputs"], tensors["best_targets"])
    iteration, stage = int(numbers["iteration"]), int(numbers["stage"])
    least, passes, damping = (float(numbers[name]) for name in ("least", "passes", "damping"))
    return _Place(guess, best, least, passes, iteration, damping, stage)


def with_ends(observation: Observation) -> Observation:
    """The same observation with its ends, where it tells them."""
    features, head = observation.features, observation.head
    if observation.ends is not None or head is None:
        return observation
    if len(features.networks) < 2 or features.chosen is not None:
        return observation
    first, last = features.networks[0], features.networks[-1]
    ends = NetworkEnds(whole_module(first, head - observation.weights), whole_module(last, head))
    return replace(observation, ends=ends)
