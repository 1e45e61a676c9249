"""exhume's attack on the last layer of any network: quasi-Newton on the projected loss, smooth pictures first.

    grow     n not given: a few candidates, then half as many again, while the cross-validated loss falls
    scout    several starts with more candidates than samples, the one of the lowest loss goes on; n not given: with
             1.75 times as many as growth ended with, because growth alone stops short where equations are scarce
    prune    remove what the weights do not need; if they need all of them, scout again with more
    polish   down to the floor, for as long as weights that were kept aside agree

Deep features are far from convex, and where a search ends depends most on its coordinates: those of `coordinates.py`
favour low frequencies; on a residual network they lowered the error of every optimiser that was compared, and in them
L-BFGS came lowest in the same time, below Gauss-Newton with conjugate gradients, heavy ball and Adam. They are a
preference for photographs: data that are not images are searched in plain coordinates, where less comes back. The
weights are only nearly in the span of the features, because the features moved during training: the loss has a floor
that nobody knows, so sizes are compared by generalised cross-validation and never by a fixed loss.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.projection import TOLERATED, Projection, removal_costs
from exhume.attacks.foundation.state import Lasting, State, Step
from exhume.attacks.modules.case import ModuleMethod
from exhume.attacks.modules.coordinates import Coordinates
from exhume.attacks.modules.problem import ModuleProblem
from exhume.attacks.modules.quasi_newton import Chart, QuasiNewton, Run, evaluate
from exhume.attacks.modules.span import GeneralSpanLoss
from exhume.errors import UsageError
from exhume.observation import Observation

SCOUT, GROW, PRUNE, POLISH, DONE = range(5)
FIRST_SIZE = 4
Runs = Generator[Run[Projection], None, Run[Projection]]
LASTING = Lasting(
    *("kept", "grown", "kept_loss", "kept_score"),
    *("phase", "unit", "iteration", "scouted", "wide", "resisted", "polished"),
    passes="loss.counter.total",
)


@dataclass(frozen=True)
class ModuleNewton(ModuleMethod):
    """Hyperparameters; none of them needs a user's hand.

    `iterations` bounds the whole attack, each about two passes. `smoothness` is the power of 1 / f in the amplitudes
    that images are searched in; 0 for no preference. `excess` is how many candidates per sample are tried where the
    number of samples is given, `widening` how many for each that growth ended with where it is not; `capacity` bounds
    their unknowns by a share of the equations. A start whose steering loss is below `good` ends the scouting.
    """

    iterations: int = option(20_000, "at most so many.")
    polish_iterations: int = 2000
    stage_iterations: int = 150
    starts: int = 3
    excess: float = 1.4
    widening: float = 1.75
    capacity: float = 0.75
    smoothness: float = 1.0
    good: float = 5e-3
    pairs: int = 20

    name: ClassVar[str] = "module-newton"
    auto_place: ClassVar[int | None] = 40
    audit_place: ClassVar[int | None] = 60
    composition: ClassVar[Composition] = Composition(
        features="what a network's last layer reads",
        target="its change",
        coefficients="free, eliminated",
        parametrisation="smooth pictures first",
        solver="L-BFGS, several starts, pruning",
        knowledge="the last layer, and the trained ones before it",
        published="here, on the loss of Iurada et al. 2025",
    )

    def __post_init__(self) -> None:
        fewest = min(self.iterations, self.polish_iterations, self.stage_iterations)
        if fewest < 1:
            raise UsageError(f"expected at least 1 iteration, found {fewest}")
        if self.starts < 1:
            raise UsageError(f"expected at least 1 start, found {self.starts}")
        if min(self.excess, self.widening) < 1:
            found = min(self.excess, self.widening)
            raise UsageError(f"expected at least as many candidates as samples, found {found} times as many")

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        if not observation.features.is_network:
            return ()
        first = PlannedAttack(cls.name, "For the penultimate features of any network, finds n by itself.", seed)
        if samples is None:
            return first, PlannedAttack(cls.name, "Another start, because the first one did not decide.", seed + 1)
        return first, PlannedAttack(cls.name, "The same, told n: it then tries several starts.", seed, samples)

    def steps(self, problem: ModuleProblem, resume: State | None = None) -> Iterator[Step]:
        search = _ModuleSearch(self, problem, resume)
        for step in search.steps():
            yield step
            if step.iteration >= self.iterations and search.phase != DONE:
                yield replace(step, candidates=self.finish(problem, step.candidates))
                return

    def finish(self, problem: ModuleProblem, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "n d"]:
        """No more than there are samples, for a search that was stopped before it came to remove the others."""
        known_count = problem.samples
        if known_count is None or len(candidates) <= known_count:
            return candidates
        return candidates[_one_by_one(problem.loss, problem.loss.fit(candidates), known_count)[-1]]


class _ModuleSearch:
    """One run of the attack in units; each unit is one run of L-BFGS, and can be resumed inside it."""

    def __init__(self, method: ModuleNewton, problem: ModuleProblem, resume: State | None) -> None:
        self.method, self.problem, self.loss = method, problem, problem.loss
        d = self.loss.features.d
        like = torch.zeros(0, d, dtype=problem.dtype, device=problem.device)
        self.coordinates: Chart
        if problem.span is not None:
            self.coordinates, d = problem.span, problem.span.numbers
        elif problem.image_shape is not None and method.smoothness:
            self.coordinates = Coordinates.smooth(problem.norm, problem.image_shape, method.smoothness, like)
        else:
            self.coordinates = Coordinates.plain(problem.norm)
        self.numbers = d
        self.rule = QuasiNewton(method.pairs)
        self.cap = max(1, math.floor(method.capacity * self.loss.equations / (d - 1 + len(self.loss.weights))))
        self.cap = min(self.cap, problem.at_most or self.cap)
        self.phase = GROW if problem.samples is None else SCOUT
        self.unit, self.iteration, self.scouted, self.resisted, self.polished = 0, 0, 0, 0, 0
        self.kept, self.kept_loss, self.kept_score = like, math.inf, math.inf
        self.grown, self.wide = like, 0  # what scouting starts from, and how many candidates it takes
        known_count = problem.samples
        if known_count is not None:
            self.wide = max(known_count, min(max(known_count + 2, round(method.excess * known_count)), self.cap))
        self.run: Run[Projection] | None = None  # the run under way
        self.resumed: State | None = None
        if resume is not None:
            self._restore(resume)

    # --- the plan

    def steps(self) -> Iterator[Step]:
        units = {SCOUT: self._scout, GROW: self._grow, PRUNE: self._prune, POLISH: self._polish}
        if self.phase == DONE:
            yield self.step()
        while self.phase != DONE:
            for run in units[self.phase]():
                self.run = run
                self.iteration += 1
                yield self.step()
            self.run = None
            self.unit += 1
            yield self.step()

    def _scout(self) -> Iterator[Run[Projection]]:
        """One start, the first of them with what has grown; the best of them goes on."""
        known = self.grown if self.scouted == 0 else self.grown[:0]
        start = torch.cat([known, self._random_rows(self.wide - len(known))])
        run = yield from self._refine(start, self.method.stage_iterations)
        if self.scouted == 0 or run.point.fit.loss < self.kept_loss:
            self._keep(run.point.fit)
        self.scouted += 1
        steering = self.problem.steering_loss(self.kept)
        enough = steering is not None and steering < self.method.good
        if enough or self.scouted >= self.method.starts:
            self.phase = PRUNE

    def _grow(self) -> Iterator[Run[Projection]]:
        """More candidates, beside those that are there; ends where the cross-validated loss does not fall clearly."""
        m = len(self.kept)
        new = self._random_rows(min(self.cap - m, max(2, m // 2) if m else FIRST_SIZE))
        run = yield from self._refine(torch.cat([self.kept, new]), self.method.stage_iterations)
        score = self.loss.cross_validated(run.point.fit)
        paid = score < 0.8 * self.kept_score
        if score < self.kept_score:
            self._keep(run.point.fit)
        if not paid or len(self.kept) >= self.cap:
            self._widen()

    def _widen(self) -> None:
        """Scouting begins, or begins again, with more candidates than are kept."""
        m = len(self.kept)
        self.wide = max(m, min(self.cap, max(m + 3, round(self.method.widening * m))))
        self.grown, self.scouted, self.resisted = self.kept, 0, 0
        self.phase = SCOUT

    def _prune(self) -> Iterator[Run[Projection]]:
        """n given: down to it at once. Else what cross-validation can do without, then one by one until two resist."""
        before, known_count = self.loss.fit(self.kept), self.problem.samples
        subset = self._subset(before)
        if len(subset) == len(before.candidates) or not subset:
            self.resisted += 1
        else:
            run = yield from self._refine(before.candidates[subset], self.method.stage_iterations)
            allowed = TOLERATED * self.loss.cross_validated(before)
            if known_count is not None or self.loss.cross_validated(run.point.fit) <= allowed:
                self._keep(run.point.fit)
                self.resisted = 1
            else:
                self.resisted += 1
        if known_count is not None or self.resisted > 2 or len(self.kept) <= 1:
            self.phase = POLISH
            if known_count is None and len(self.kept) == self.wide < self.cap:
                self._widen()

    def _subset(self, fit: Projection) -> list[int]:
        """Which candidates to try without the others: `resisted` counts the attempts that failed."""
        known_count = self.problem.samples
        if known_count is None and self.resisted:
            order = removal_costs(fit, self.loss).argsort().tolist()
            left_out = order[min(self.resisted - 1, len(order) - 1)]
            return [index for index in range(len(order)) if index != left_out]
        smaller = _one_by_one(self.loss, fit, known_count or 1)
        if known_count is not None:
            return smaller[-1]
        return min(smaller, key=lambda kept: self.loss.cross_validated(self.loss.restricted(fit, kept)))

    def _polish(self) -> Iterator[Run[Projection]]:
        """Down to the floor; with steering weights in stages, because below the floor only the drift is fitted."""
        before = self.problem.steering_loss(self.kept)
        length = self.method.polish_iterations if before is None else self.method.stage_iterations
        run = yield from self._refine(self.kept, length, gain=1e-3)
        after = self.problem.steering_loss(run.point.fit.candidates)
        worse = before is not None and after is not None and after > before
        stalled = run.point.fit.loss > 0.99 * self.kept_loss
        self.polished += max(1, run.iteration)
        if not worse:
            self._keep(run.point.fit)
        if worse or stalled or before is None or self.polished >= self.method.polish_iterations:
            self.phase = DONE

    # --- its parts

    def _refine(self, candidates: Float[Tensor, "m d"], iterations: int, gain: float = 0.01) -> Runs:
        rule = replace(self.rule, gain=gain)
        run = self._resumed_run()
        if run is None:
            run = rule.start(self.loss, self.coordinates, self.coordinates.coordinates_of(candidates))
        for after in rule.refine(self.loss, self.coordinates, run, iterations):
            run = after
            yield run
        return run

    def _keep(self, fit: Projection) -> None:
        self.kept, self.kept_loss, self.kept_score = fit.candidates, fit.loss, self.loss.cross_validated(fit)

    def _random_rows(self, count: int) -> Float[Tensor, "count d"]:
        """Random samples, as the coordinates make them: smooth pictures, or points of the span."""
        shape = (count, self.numbers)
        drawn = torch.randn(shape, generator=self.problem.generator(self.unit), dtype=torch.float64)
        return self.coordinates.rows_at(drawn.to(self.kept))

    # --- what others see

    def step(self) -> Step:
        """While a later run is under way, the best that is finished is what an interruption should keep."""
        candidates, loss = self.kept, self.kept_loss
        if self.run is not None and (self.phase == POLISH or not len(self.kept)):
            candidates, loss = self.run.point.fit.candidates, self.run.point.fit.loss
        notes: dict[str, float] = {"candidates": len(candidates), "phase": self.phase}
        return Step(self.iteration, candidates, loss, self._save(), notes)

    def _save(self) -> State:
        state = LASTING.save(self)
        if self.run is None:
            return state
        tensors = {"z": self.run.point.z, "steps": self.run.steps, "changes": self.run.changes}
        numbers = {"run_iteration": self.run.iteration, "mark": self.run.mark}
        return State(state.tensors | tensors, state.numbers | numbers)

    def _restore(self, state: State) -> None:
        LASTING.restore(self, state, self.problem.device)
        self.resumed = state if "z" in state.tensors else None

    def _resumed_run(self) -> Run[Projection] | None:
        """The run that was under way, as it was; its point is evaluated again, which is not counted again."""
        if self.resumed is None:
            return None
        state, self.resumed = self.resumed, None
        tensors = {name: state.tensors[name].to(self.problem.device) for name in ("z", "steps", "changes")}
        point = evaluate(self.loss, self.coordinates, tensors["z"])
        self.loss.counter.total = state.numbers["passes"]
        numbers = state.numbers
        return Run(point, tensors["steps"], tensors["changes"], int(numbers["run_iteration"]), numbers["mark"])


def _one_by_one(loss: GeneralSpanLoss, fit: Projection, fewest: int) -> list[list[int]]:
    """Smaller and smaller sets of candidates, each without the one that is cheapest to remove, down to so few."""
    sets = [list(range(len(fit.candidates)))]
    while len(sets[-1]) > fewest:
        costs = removal_costs(loss.restricted(fit, sets[-1]), loss)
        sets.append([index for place, index in enumerate(sets[-1]) if place != int(costs.argmin())])
    return sets
