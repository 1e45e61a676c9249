"""The informed adversary: n − 1 training samples known, the one that is missing is recovered (Balle et al.).

In closed form where the fit is known to be stationary and φ is linear or ReLU; by Gauss-Newton with the known features
projected out otherwise, and as a polish: `missing_sample.py` has the mathematics.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.informed.case import InformedCase, InformedProblem
from exhume.attacks.informed.missing_sample import MissingSample, SampleGuess
from exhume.attacks.single_layer.method import OnRandomRows
from exhume.observation import Observation

FIRST_DAMPING = 1e-3
LEAST_DAMPING = 1e-9
REFUSED = 5  # steps in a row that lower the loss by less than a hundredth end the search
EXPLAINED = 1e-26  # the squared rounding of float64
FOUND = 1e-10  # a loss that only the sample itself has: no other start is needed


@dataclass(frozen=True)
class InformedAttack(OnRandomRows[InformedProblem]):
    """`iterations` of Gauss-Newton from each start."""

    iterations: int = option(60, "at most so many from each start.")

    name: ClassVar[str] = "informed"
    needs: ClassVar[str] = "It is for an attacker who has all training samples but a few."
    composition: ClassVar[Composition] = Composition(
        features="φ(Vx + b), the last layer's",
        target="what the known samples leave of the weights",
        coefficients="closed form, or known features projected out",
        parametrisation="one row",
        solver="closed form, Gauss-Newton",
        knowledge="the last layer, and all samples but one",
        published="Balle et al. 2022",
    )
    takes_known: ClassVar[bool] = True
    few_rows = True

    @classmethod
    def refusal(cls, outline: Outline) -> str | None:
        if outline.outputs not in (None, 1):
            return f"expected one output for --method informed, found {outline.outputs}"
        return super().refusal(outline)

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[InformedProblem]:
        return InformedCase.open(observation, seed, held_out, resources)

    def steps(self, problem: InformedProblem, resume: State | None = None) -> Iterator[Step]:
        """Starts in turn, the best result last. A search that was stopped begins again: it takes seconds."""
        missing, iteration, best = problem.missing, 0, None
        for start in problem.starts():
            if best is not None and best.loss < FOUND:
                return
            if missing is None:
                yield _step(iteration, start, 0.0)
                return
            for guess in self._descend(problem, missing, start):
                iteration += 1
                if best is None or guess.loss < best.loss:
                    best = guess
                yield _step(iteration, best.candidate, best.loss)

    def _descend(
        self, problem: InformedProblem, missing: MissingSample, start: Float[Tensor, " d"]
    ) -> Iterator[SampleGuess]:
        """Levenberg-Marquardt: no step raises the loss.

        This is no `foundation.levenberg.Refinement`: with one unknown sample a step is exact, so that damping may fall
        by 5 each time, and a start that gains little is left for the next one after a few steps.
        """
        guess, damping, refused = missing.guess(problem.at_norm(start)), FIRST_DAMPING, 0
        yield guess
        for _ in range(self.iterations):
            if guess.loss < EXPLAINED or refused >= REFUSED:
                return
            trial = missing.guess(problem.at_norm(guess.candidate + missing.step(guess, damping)))
            refused = 0 if trial.loss < 0.99 * guess.loss else refused + 1
            if trial.loss < guess.loss:
                guess, damping = trial, max(damping / 5, LEAST_DAMPING)
            else:
                damping *= 4
            yield guess


def _step(iteration: int, candidate: Float[Tensor, " d"], loss: float) -> Step:
    state = State({"candidates": candidate[None]}, {"iteration": 0})
    return Step(iteration, candidate[None], loss, state, {"candidates": 1})
