"""The attacks on all layers of a two-layer network: one solver, two targets (`view.py`).

    start    more candidates than samples, from random pictures; quasi-Newton at one sharpness after the other
    regrow   the candidates that the others can best do without are drawn anew, from the second rung of the ladder on
    prune    down to the number of samples, where it is given or shows in the rank of the first layer
    polish   at the last sharpness

Of the starts, and before and after each regrowth, what has the lowest loss goes on: on weights that were kept aside,
where there are any. A smooth network has no ladder of sharpness to climb.

The coefficients of the published attacks are optimised beside the candidates, by Adam or SGD over tens of thousands of
steps. Here they are eliminated, as in the span loss, which leaves a loss that L-BFGS minimises in hundreds.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.state import Lasting, State, Step
from exhume.attacks.modules.quasi_newton import QuasiNewton
from exhume.attacks.single_layer.method import OnRandomRows
from exhume.attacks.tangent.case import TangentCase, TangentProblem
from exhume.attacks.tangent.span import Rule, TangentSpanLoss
from exhume.attacks.tangent.view import TangentView
from exhume.errors import UsageError
from exhume.observation import Observation

GRADIENTS = {"halfway": 0.5, "trained": 0.0, "initial": 1.0}
"""How far back from the trained weights to the initial ones."""
NTK = Composition(
    features="gradients of f in all weights, halfway through training",
    target="the change of all weights",
    coefficients="free, eliminated",
    parametrisation="x = U z as above, smooth pictures first",
    solver="L-BFGS at growing sharpness, several starts, regrowth",
    knowledge="all layers before and after training",
    published="Loo et al. 2024",
)
LASTING = Lasting(
    *("kept", "current", "kept_score", "kept_loss", "unit", "iteration"), passes="problem.loss.counter.total"
)
DEFAULT_SAMPLES = 10  # where nobody tells the number of samples, and the first layer does not show it


@dataclass(frozen=True)
class TangentAttack(OnRandomRows[TangentProblem]):
    """Hyperparameters that both attacks share.

    `excess`: candidates for each sample. `redrawn`: the share of them that a regrowth replaces. `ladder`: sharpness,
    smooth to steep, in units of what a unit's preactivation usually is.
    `span` and `smoothness`: see TangentView.
    """

    iterations: int = option(3000, "at most so many.")
    stage_iterations: int = 100
    starts: int = 2
    regrowths: int = 3
    excess: float = 1.4
    redrawn: float = 0.5
    ladder: tuple[float, ...] = (2.0, 8.0, 30.0, 100.0)
    span: bool = True
    smoothness: float = 1.0
    pairs: int = 20

    own_subspaces: ClassVar[tuple[str, ...]] = ("given",)

    def __post_init__(self) -> None:
        if min(self.iterations, self.stage_iterations, self.starts) < 1:
            raise UsageError("expected at least 1 iteration and 1 start, found fewer")
        if self.excess < 1:
            raise UsageError(f"expected at least as many candidates as samples, found {self.excess} times as many")
        if self.regrowths < 0 or not 0 < self.redrawn < 1:
            raise UsageError(f"expected a share of candidates between 0 and 1 to draw anew, found {self.redrawn}")
        if not self.ladder or min(self.ladder) <= 0:
            raise UsageError(f"expected positive sharpness, found {self.ladder}")

    @abstractmethod
    def looks(self) -> TangentView: ...

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[TangentProblem]:
        return TangentCase.open(observation, self.looks(), seed, held_out)

    def steps(self, problem: TangentProblem, resume: State | None = None) -> Iterator[Step]:
        yield from _TangentSearch(self, problem, resume).steps()


@dataclass(frozen=True)
class NtkAttack(TangentAttack):
    """The change of all weights as a combination of gradients (Loo et al.). `back` as in `TangentView`."""

    back: float = option(
        0.5, "gradients at: halfway (default), trained (as published), initial.", name="gradients_at", choices=GRADIENTS
    )

    name: ClassVar[str] = "ntk"
    audit_place: ClassVar[int | None] = 40
    needs: ClassVar[str] = (
        "An audit makes it of two-layer networks without bias that are known before and after training."
    )
    composition: ClassVar[Composition] = NTK

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        moved, head = observation.initial_rows is not None, observation.published_head
        if observation.features.is_network or not moved or observation.ridge.bias is not None or head is None:
            return ()
        return (PlannedAttack(cls.name, "The change of all layers at once.", seed),)

    def looks(self) -> TangentView:
        return TangentView(False, self.back, self.span, self.smoothness)


@dataclass(frozen=True)
class KktAttack(TangentAttack):
    """Weights that grew from next to nothing as a combination of gradients (Haim et al., Buzaglo et al.).

    The conditions hold at the end of training only, and say nothing of samples off the margin: some candidates stay
    wrong, and which ones shows in how well independent runs agree (`agreement.py`).
    """

    rule: Rule = option(
        "free",
        "coefficients free (default), or margin: not negative, as published.",
        choices={"free": "free", "margin": "margin"},
    )

    name: ClassVar[str] = "kkt"
    needs: ClassVar[str] = (
        "It needs a two-layer classifier that was trained far beyond fitting; run it with 'exhume attack'."
    )
    composition: ClassVar[Composition] = Composition(
        features="gradients of f in the first layer, at the end of training",
        target="the first layer itself",
        coefficients="free, or of margins and not negative",
        parametrisation="x = U z, U the span of the first layer",
        solver="L-BFGS at growing sharpness, several starts, regrowth",
        knowledge="all layers after training, which began with a small first one",
        published="Haim et al. 2022, Buzaglo et al. 2023",
    )

    def looks(self) -> TangentView:
        return TangentView(True, False, self.span, self.smoothness, self.rule)


@dataclass(frozen=True)
class _Unit:
    kind: Literal["start", "regrow", "prune", "polish"]
    rung: int = 0
    first: bool = False
    """Whether it begins with new candidates."""


def _plan(method: TangentAttack, rungs: int, settled: bool) -> tuple[_Unit, ...]:
    """A regrowth begins on the second rung, where candidates that are right stay what they are.

    `settled`: candidates keep their places from a start to the end.
    """
    starts = [_Unit("start", rung, rung == 0) for _ in range(method.starts) for rung in range(rungs)]
    if settled:
        return (*starts, _Unit("polish"))
    second = min(1, rungs - 1)
    regrowth = [_Unit("regrow", rung, rung == second) for rung in range(second, rungs)]
    return (*starts, *regrowth * method.regrowths, _Unit("prune"), _Unit("polish"))


class _TangentSearch:
    """One attack in units, each a run of L-BFGS. A search that was stopped goes on from the start of its last unit."""

    def __init__(self, method: TangentAttack, problem: TangentProblem, resume: State | None) -> None:
        self.method, self.problem = method, problem
        self.ladder = method.ladder if problem.loss.network.activation.rectifier else (None,)
        # the classes of the rule "margin" go by a candidate's place, which regrowing and pruning would change
        settled = problem.loss.rule == "margin"
        self.plan = _plan(method, len(self.ladder), settled)
        none = torch.zeros(0, problem.loss.network.d, dtype=torch.float64)
        self.kept, self.kept_score, self.kept_loss = none, float("inf"), float("inf")
        self.current = none
        self.unit, self.iteration = 0, 0
        if resume is not None:
            LASTING.restore(self, resume, none.device)

    def steps(self) -> Iterator[Step]:
        if self.unit >= len(self.plan):
            yield self._step(self.kept, self.kept_loss, LASTING.save(self))
        while self.unit < len(self.plan):
            yield from self._work(self.plan[self.unit], LASTING.save(self))
            self.unit += 1
            if len(self.kept):
                yield self._step(self.kept, self.kept_loss, LASTING.save(self))

    def _work(self, unit: _Unit, state: State) -> Iterator[Step]:
        if unit.kind == "polish" or (unit.kind == "prune" and self.problem.samples is not None):
            self.current = self.kept if unit.kind == "polish" else self._pruned()
            yield from self._refine(self.ladder[-1], state)
            self.kept, self.kept_loss = self.current, self._exact_loss(self.current)
        elif unit.kind in ("start", "regrow"):
            if unit.first:
                self.current = self._random_rows(self._size()) if unit.kind == "start" else self._redrawn()
            yield from self._refine(self.ladder[unit.rung], state)
            if unit.rung == len(self.ladder) - 1:
                self._compare()

    def _refine(self, sharpness: float | None, state: State) -> Iterator[Step]:
        """L-BFGS from the current candidates."""
        loss, coordinates = self._at(sharpness), self.problem.coordinates
        rule = QuasiNewton(self.method.pairs, gain=1e-3)
        run = rule.start(loss, coordinates, coordinates.coordinates_of(self.current))
        left = self.method.iterations - self.iteration
        for after in rule.refine(loss, coordinates, run, min(left, self.method.stage_iterations)):
            run = after
            self.iteration += 1
            if len(self.kept) and self.plan[self.unit].kind in ("start", "regrow"):  # what an interruption should keep
                yield self._step(self.kept, self.kept_loss, state)
            else:
                yield self._step(run.point.fit.candidates, run.point.fit.loss, state)
        self.current = run.point.fit.candidates

    def _compare(self) -> None:
        """The best of several starts: by weights that were kept aside, where there are any."""
        steering, loss = self.problem.steering_loss(self.current), self._exact_loss(self.current)
        score = loss if steering is None else steering
        if score < self.kept_score:
            self.kept, self.kept_score, self.kept_loss = self.current, score, loss

    def _pruned(self) -> Float[Tensor, "m c"]:
        """One after the other, without the candidate that the others can best do without."""
        assert self.problem.samples is not None, "pruning is down to a number"
        loss, kept = self._at(self.ladder[-1]), self.kept
        while len(kept) > self.problem.samples:
            cheapest = int(loss.removal_costs(loss.fit(kept)).argmin())
            kept = torch.cat([kept[:cheapest], kept[cheapest + 1 :]])
        return kept

    def _redrawn(self) -> Float[Tensor, "m c"]:
        """The cheapest candidates are replaced by random ones."""
        loss, size = self._at(self.ladder[-1]), self._size()
        order = loss.removal_costs(loss.fit(self.kept)).argsort(descending=True)
        stay = self.kept[order[: max(1, round((1 - self.method.redrawn) * size))]]
        return torch.cat([stay, self._random_rows(size - len(stay))])

    def _size(self) -> int:
        wanted = self.problem.samples or DEFAULT_SAMPLES
        return max(wanted, round(self.method.excess * wanted))

    def _random_rows(self, count: int) -> Float[Tensor, "m c"]:
        c = self.problem.loss.network.d
        drawn = torch.randn(count, c, generator=self.problem.generator(self.unit), dtype=torch.float64)
        return self.problem.coordinates.rows_at(drawn)

    def _at(self, sharpness: float | None) -> TangentSpanLoss:
        return self.problem.loss if sharpness is None else self.problem.loss.at(sharpness)

    def _exact_loss(self, candidates: Float[Tensor, "m c"]) -> float:
        return self.problem.loss.fit(candidates).loss

    def _step(self, candidates: Float[Tensor, "m c"], loss: float, state: State) -> Step:
        return Step(self.iteration, candidates, loss, state, {"candidates": len(candidates), "unit": self.unit})
