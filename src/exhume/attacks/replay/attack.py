"""Training replayed: the samples are found that, trained on by the declared recipe, end at the published weights.

It needs the whole network before and after training and the recipe, and no form of the optimiser: what Adam does to a
gradient is replayed as well. `annealing.py` has the search, `fitting.py` the solver, `case.py` the verdict.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
from exhume.attacks.replay.annealing import FIRST_DAMPING, Stage, fit_stage, random_start, schedule
from exhume.attacks.replay.case import EXPLAINED, ReplayCase, ReplayProblem
from exhume.attacks.replay.fitting import Guess
from exhume.attacks.replay.view import with_ends
from exhume.errors import UsageError
from exhume.observation import Observation

DAMPINGS = (1e-5, 1e-1)  # that a stage may begin with, whatever the last one ended with
BYTES_BESIDE = 12  # copies of all weights: path, guide and what conjugate gradients keep


@dataclass(frozen=True)
class Replay(Method[ReplayProblem]):
    """`cycles`: how often the smoothing is taken back; a search whose fit is at rounding ends before."""

    cycles: int = option(3, "replay: how often the smoothing is raised again and taken back.", name="replay_cycles")

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
    needs_samples = True

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise UsageError(f"expected at least 1 cycle, found {self.cycles}")

    @classmethod
    def refusal(cls, outline: Outline) -> str | None:
        if not outline.replayable:
            return f"expected a network with its recipe for --method replay, found none. {cls.needs}"
        return None

    @classmethod
    def view(cls, observation: Observation) -> Observation:
        return with_ends(observation)

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        recipe = observation.recipe
        if cls.refusal(Outline.of(observation)) or recipe is None or (samples is None and recipe.labels is None):
            return ()
        return (PlannedAttack(cls.name, f"The declared training is replayed: {recipe.described}.", seed, samples),)

    @property
    def iterations(self) -> int:
        return sum(stage.iterations for stage in schedule(self.cycles))

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        ends = observation.ends
        return 0 if ends is None else BYTES_BESIDE * len(ends.end) * dtype.itemsize

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[ReplayProblem]:
        return ReplayCase.open(observation, seed, held_out, resources)

    def steps(self, problem: ReplayProblem, resume: State | None = None) -> Iterator[Step]:
        """One step per iteration of the fit. A search that was stopped goes on from the stage that it was in."""
        loss, generator = problem.loss, problem.generator(0)
        if resume is None:
            guess, iteration, damping, begun = random_start(loss, problem.labels, generator), 0, FIRST_DAMPING, 0
        else:
            guess, iteration, damping, begun = _restored(resume)
        stages = schedule(self.cycles)
        state = _state(guess, iteration, damping, begun)
        left = loss.share(guess)
        yield Step(iteration, _columns(guess), left**2, state, _notes(stages[begun], left))
        for place in range(begun, len(stages)):
            low, high = DAMPINGS
            for fitted in fit_stage(
                loss, stages[place], guess, min(max(damping, low), high), problem.generator(place + 1)
            ):
                guess, damping, iteration = fitted.guess, fitted.damping, iteration + 1
                yield Step(iteration, _columns(guess), fitted.left**2, state, _notes(stages[place], left))
            guess, left = _rounded(problem, stages[place], guess), loss.share(guess)
            state = _state(guess, iteration, damping, place + 1)
            if left < EXPLAINED / 10 and stages[place].sigma == 0:
                break
        yield Step(iteration + 1, _columns(guess), left**2, state, _notes(stages[-1], left))


def _rounded(problem: ReplayProblem, stage: Stage, guess: Guess) -> Guess:
    return guess


def _columns(guess: Guess) -> Tensor:
    return torch.cat([guess.inputs, guess.targets], dim=1)


def _notes(stage: Stage, left: float) -> dict[str, float]:
    """`unexplained`: of the training itself, when the stage began."""
    return {"sigma": stage.sigma, "guided": float(stage.guided), "unexplained": left}


def _state(guess: Guess, iteration: int, damping: float, stage: int) -> State:
    numbers = {"iteration": iteration, "damping": damping, "stage": stage}
    return State({"inputs": guess.inputs, "targets": guess.targets}, numbers)


def _restored(state: State) -> tuple[Guess, int, float, int]:
    numbers = state.numbers
    guess = Guess(state.tensors["inputs"], state.tensors["targets"])
    return guess, int(numbers["iteration"]), float(numbers["damping"]), int(numbers["stage"])
