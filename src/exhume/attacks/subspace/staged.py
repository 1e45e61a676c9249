"""A method on several problems in turn, each in other coordinates of the same samples: coarse first, then finer.

What a stage finds is lifted to samples, lowered to the coordinates of the next stage, and is where that one starts.
Whatever stage is under way, what others see are candidates in the coordinates of the last one, whose case also judges
them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.given import Given
from exhume.attacks.foundation.judgement import Facts, Judgement
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.single_layer.case import RidgeCase
from exhume.attacks.single_layer.problem import Problem
from exhume.held_out import HeldOut

MOST_USED = 0.6  # share of the equations that the unknowns of a further stage may use up


@dataclass(frozen=True, eq=False)
class Account:
    """The passes of all stages, in sweeps over all columns of V."""

    cases: tuple[RidgeCase, ...]

    @property
    def passes(self) -> float:
        return sum(case.problem.loss.passes for case in self.cases)


@dataclass(frozen=True, eq=False)
class StagedProblem:
    """Problems in their order. A further stage takes as many candidates as its equations are enough for; where that is
    less than were found, it is left out if it is `optional`, and else begins with the strongest."""

    cases: tuple[RidgeCase, ...]
    optional: bool = True

    def __post_init__(self) -> None:
        for case in self.cases:
            loss, d = case.problem.loss, case.observation.d if case.stands_for is None else case.stands_for.d
            counter = PassCounter(round(loss.counter.all_rows * d / loss.features.d))
            loss.counter = case.problem.coarse.counter = counter

    @property
    def loss(self) -> Account:
        return Account(self.cases)

    def problem(self, stage: int, start: Float[Tensor, "m c"] | None) -> Problem:
        return replace(self.cases[stage].problem, start=start)

    def moved(self, candidates: Float[Tensor, "m c"], stage: int, to: int) -> Float[Tensor, "m e"]:
        """Candidates of one stage in the coordinates of another."""
        if stage == to:
            return candidates
        samples, target = self.cases[stage].lift(candidates), self.cases[to]
        lowered = samples if target.stands_for is None else target.stands_for.lower(samples)
        return target.problem.loss.retracted(lowered, target.problem.norm)

    def start(self, candidates: Float[Tensor, "m c"], stage: int) -> Float[Tensor, "m e"] | None:
        """What the next stage begins with; None where it is left out."""
        loss, before = self.cases[stage + 1].problem.loss, self.cases[stage].problem.loss
        most = max(1, math.floor(MOST_USED * loss.equations / loss.unknowns))
        if len(candidates) > most and self.optional:
            return None
        if len(candidates) > most:
            fit = before.fit(candidates.to(before.weights))
            candidates = candidates[removal_costs(fit, before).argsort(descending=True)[:most].sort().values]
        return self.moved(candidates, stage, stage + 1)


@dataclass(frozen=True, eq=False)
class StagedCase:
    problem: StagedProblem
    facts: Facts
    given: Given

    @property
    def held_out(self) -> HeldOut:
        return self.problem.cases[-1].held_out

    def unseen_loss(self, candidates: Float[Tensor, "m c"]) -> float | None:
        return self.problem.cases[-1].unseen_loss(candidates)

    def judge(self, candidates: Float[Tensor, "m c"]) -> Judgement:
        return self.problem.cases[-1].judge(candidates)

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        return self.problem.cases[-1].lift(candidates)


def staged_steps(methods: Sequence[Method[Problem]], staged: StagedProblem, resume: State | None) -> Iterator[Step]:
    """The steps of one stage after the other, by a method each."""
    stage, before, start, state = 0, 0, None, None
    if resume is not None:
        stage, before = int(resume.numbers["stage"]), int(resume.numbers["before"])
        state = State(resume.tensors, {**resume.numbers, "iteration": resume.numbers["iteration"] - before})
        for earlier in range(stage):
            staged.cases[earlier].problem.loss.counter.total = resume.numbers[f"passes_{earlier}"]
    last = len(staged.cases) - 1
    while True:
        step = None
        for step in methods[stage].steps(staged.problem(stage, start), state):
            yield _outer(step, staged, stage, before)
        assert step is not None, "a method yields at least its start"
        start, state = None if stage == last else staged.start(step.candidates, stage), None
        if start is None:
            return
        stage, before = stage + 1, before + step.iteration


def _outer(step: Step, staged: StagedProblem, stage: int, before: int) -> Step:
    earlier = {f"passes_{index}": staged.cases[index].problem.loss.passes for index in range(stage)}
    iteration = before + step.state.numbers["iteration"]
    numbers = {**step.state.numbers, **earlier, "iteration": iteration, "stage": stage, "before": before}
    state, notes = State(step.state.tensors, numbers), {**step.notes, "stage": stage}
    candidates = staged.moved(step.candidates, stage, len(staged.cases) - 1)
    return Step(before + step.iteration, candidates, step.loss, state, notes, step.facts)
