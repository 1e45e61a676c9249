"""exhume's own attack: grow candidates where the residual points, refine them by Gauss-Newton, and find n on the way.

    grow     add candidates and refine all of them, until the loss is at its floor or nothing is gained
    regrow   while stuck: drop the cheapest candidates, grow again, keep the result if it is better
    prune    merge copies, remove what the weights do not need: the number of samples is what remains
    polish   signs, then Gauss-Newton on the published loss down to the rounding of the weights

Two regimes share this plan. Up to `dense_dim` dimensions the free affine part is eliminated exactly, proposals are
eigenvectors of the residual's moment, and each refinement step takes a few conjugate-gradient products: this succeeds
close to the counting limit p = dn. Above, where passes over V are all that counts, candidates start at random, their
number grows by half, and each step is a split step with momentum: two passes.

Only as many rows are used as the candidates need (`rows_a_number` for each of their m d numbers).
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import hermite_coefficients
from exhume.attacks.levenberg import Levenberg, Pace
from exhume.attacks.problem import Problem, State, Step
from exhume.attacks.proposals import capacity, moment_proposals, pooled_proposals, random_rows
from exhume.attacks.pruning import cross_validated, removal_costs, without_copies
from exhume.attacks.signs import repair_signs
from exhume.attacks.span import Fit, SpanLoss
from exhume.errors import UsageError

GROW, REGROW, PRUNE, POLISH, DONE = range(5)
COARSE_FLOOR = 1e-5
STEERING_GOOD = 1e-3
Fits = Generator[Fit, None, Fit]


@dataclass(frozen=True)
class SplitNewton:
    """Hyperparameters; none of them needs a user's hand."""

    iterations: int = 20_000
    converged: float = 1e-10  # a loss that counts as the floor of float32 weights
    dense_dim: int = 256
    stage_iterations: int = 15
    growth: float = 0.25  # at most this share of new candidates a stage (dense); 0.5 otherwise
    capacity: float = 0.75  # m d <= capacity p
    rows_a_number: float = 5.0
    growing_rows_a_number: float = 12.0  # while the residual's moments are looked at (dense)
    rounds: int = 30
    attempts: int = 2  # from different starts; the one that predicts the steering weights best is kept
    exact: bool = False  # polish in float64

    name: ClassVar[str] = "split-newton"
    needs_samples: ClassVar[bool] = False
    few_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise UsageError(f"expected at least 1 iteration, found {self.iterations}")

    def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
        search = _Search(self, problem, resume)
        for fit in search.run():
            step = search.step(fit)
            yield step
            if search.iteration >= self.iterations and search.phase != DONE:
                yield replace(step, candidates=self.finish(problem, step.candidates))
                return

    def finish(self, problem: Problem, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """Signs, for a search that was stopped before it came to them."""
        return repair_signs(problem.loss, candidates)


class _Search:
    """One run of the attack, in units after each of which a checkpoint can be taken.

    Everything that outlives a unit is in `_save`; random numbers follow from the unit's number.
    """

    def __init__(self, method: SplitNewton, problem: Problem, resume: State | None) -> None:
        self.method, self.problem, self.loss = method, problem, problem.loss
        p, d = self.loss.features.p, self.loss.features.d
        self.dense = d <= method.dense_dim
        self.blind = abs(float(hermite_coefficients(self.loss.features.activation, 2)[2])) < 1e-6
        limit = capacity(p, d, method.capacity)
        told = problem.samples
        self.cap = limit if told is None else told if self.dense else min(limit, max(told + 2, round(1.25 * told)))
        self.phase, self.unit, self.iteration, self.rounds, self.failures = GROW, 0, 0, 0, 0
        self.attempt, self.kept_loss = 0, math.inf
        self.growth = _Growth()
        self.kept = self.candidates = torch.zeros(0, d, dtype=problem.dtype, device=problem.device)
        self._parts: dict[tuple[int, bool], SpanLoss] = {}
        if resume is not None:
            self._restore(resume)
        self.boundary = self._save()

    # --- the plan

    def run(self) -> Iterator[Fit]:
        units = {GROW: self._grow, REGROW: self._regrow, PRUNE: self._prune, POLISH: self._polish}
        while self.phase != DONE:
            fit = yield from units[self.phase]()
            self.candidates = fit.candidates
            if self.phase == DONE:
                self._judge_attempt()
            self.unit += 1
            self._parts.clear()  # so that a resumed run does, and counts, the same
            self.boundary = self._save()
        yield self.loss.to(self.candidates.dtype).fit(self.candidates)

    def _judge_attempt(self) -> None:
        """Keeps the better of two attempts, by weights that neither fitted; begins another one where needed."""
        steering = self.problem.steering_loss(self.candidates)
        if steering is None:
            return
        if steering < self.kept_loss:
            self.kept, self.kept_loss = self.candidates, steering
        self.candidates = self.kept
        self.attempt += 1
        if self.kept_loss > STEERING_GOOD and self.attempt < self.method.attempts:
            self.phase, self.rounds, self.failures, self.growth = GROW, 0, 0, _Growth()
            self.candidates = self.kept[:0].to(self.problem.dtype)

    def _grow(self) -> Fits:
        """One stage of growth; when nothing is gained by another one, a last refinement."""
        fit = self._fit(self.candidates) if len(self.candidates) else None
        if fit is None or self.growth.goes_on(fit, self.cap, self.converged):
            return (yield from self._stage(self.growth, fit, self.cap))
        widest = capacity(self.loss.features.p, self.loss.features.d, 0.92)
        full = len(fit.candidates) >= self.cap and fit.loss > self.converged
        if full and self.cap < widest and self.problem.samples is None:
            self.cap = widest  # close to the counting limit the usual margin may be too narrow for all samples
            return fit
        if fit.loss > self.converged:
            fit = yield from self._refine(fit, 40, stall=15)
        self.phase = PRUNE if fit.loss <= self.converged else REGROW
        return fit

    def _regrow(self) -> Fits:
        """Drop the cheapest 15-65 %, grow again, keep what is better; a cap that fails often is raised by one."""
        loss = self._part(len(self.candidates))
        best = loss.fit(self.candidates)
        share = 0.15 + 0.5 * float(torch.rand(1, generator=self._generator()))
        count = min(max(2, int(share * len(self.candidates))), len(self.candidates) - 1)
        kept = removal_costs(best, loss).argsort(descending=True)[: len(self.candidates) - count]
        trial = yield from self._watching(best, self._grow_again(self.candidates[kept]))
        self.rounds += 1
        better = cross_validated(self._part(len(trial.candidates)), trial) < cross_validated(loss, best)
        best, self.failures = (trial, 0) if better else (best, self.failures + 1)
        if self.failures and self.failures % 12 == 0 and self.problem.samples is None:
            self.cap = min(self.cap + 1, capacity(self.loss.features.p, self.loss.features.d, 0.95))
        if best.loss <= self.converged or self._hopeless(best):
            self.phase = PRUNE
        return best

    def _prune(self) -> Fits:
        """Merge copies, then remove the cheapest for as long as the refitted loss stays where it was."""
        fit = self._fit(self.candidates)
        if self.problem.coarse is not self.loss:  # coarse products end here
            fit = yield from self._refine(fit, 60, stall=8)
        kept = without_copies(fit)
        if not bool(kept.all()):
            trial = yield from self._watching(fit, self._refit(fit.candidates[kept]))
            if trial.loss <= max(10 * fit.loss, self.method.converged):
                fit = trial
        fit = yield from self._remove_cheap(fit)
        resisted = 0
        while len(fit.candidates) > max(1, resisted) and resisted < 2 and self.problem.samples != len(fit.candidates):
            loss = self._part(len(fit.candidates))
            order = removal_costs(fit, loss).argsort()
            keep = torch.ones(len(order), dtype=torch.bool, device=order.device)
            keep[order[resisted]] = False
            trial = yield from self._watching(fit, self._refit(fit.candidates[keep]))
            allowed = max(1.02 * cross_validated(loss, fit), 10 * self.method.converged)
            if cross_validated(self._part(len(trial.candidates)), trial) > allowed:
                resisted += 1
            else:
                fit, resisted = trial, 0
        told = self.problem.samples
        while told is not None and len(fit.candidates) > told:  # there are no more samples than that
            kept = removal_costs(fit, self._part(len(fit.candidates))).argsort(descending=True)[:told]
            fit = yield from self._watching(fit, self._refit(fit.candidates[kept]))
        self.phase = POLISH
        return fit

    def _remove_cheap(self, fit: Fit) -> Fits:
        """All candidates whose removal costs no more than the loss itself, at once: the common case in one refit."""
        costs = removal_costs(fit, self._part(len(fit.candidates)))
        kept = costs > 10 * max(fit.loss, self.method.converged)
        if bool(kept.all()) or not bool(kept.any()):
            return fit
        trial = yield from self._watching(fit, self._refit(fit.candidates[kept]))
        return trial if trial.loss <= max(10 * fit.loss, 10 * self.method.converged) else fit

    def _polish(self) -> Fits:
        """Signs, then the published loss (no affine part) down to the floor."""
        loss = self._rows_for(len(self.candidates), self.method.rows_a_number)
        candidates = repair_signs(loss, self.candidates)
        if self.method.exact:
            loss, candidates = loss.to(torch.float64), candidates.double()
        rule = Levenberg(40 if self.dense else 0, forcing=0.01, damping_floor=1e-8, stall=4, stall_factor=0.7)
        fit = loss.fit(candidates)
        for refined in rule.refine(loss, fit, self.problem.norm, 40):
            fit = refined
            self.iteration += 1
            yield fit
        self.phase = DONE
        return fit

    # --- its parts

    def _stage(self, growth: "_Growth", fit: Fit | None, cap: int) -> Fits:
        """Adds candidates and refines all of them; a stage that pays is repeated before more are added."""
        if fit is None or not growth.paying:
            new = self._propose(fit, cap)
            fit = self._fit(new if fit is None else torch.cat([fit.candidates, new]))
            growth.added, growth.pace = len(new), Pace()
        before = fit.loss
        stall = 8 if self.dense else 10**9
        fit = yield from self._refine(fit, self.method.stage_iterations, stall, growth.pace)
        growth.paying = not self.dense and fit.loss < before / 8
        growth.judge(cross_validated(self._part(len(fit.candidates)), fit))
        return fit

    def _grow_again(self, candidates: Float[Tensor, "m d"]) -> Fits:
        fit, growth = self._fit(candidates), _Growth()
        while growth.goes_on(fit, self.cap, self.converged):
            fit = yield from self._stage(growth, fit, self.cap)
        return (yield from self._refine(fit, 40, stall=15))

    def _propose(self, fit: Fit | None, cap: int) -> Float[Tensor, "count d"]:
        m = 0 if fit is None else len(fit.candidates)
        if not self.dense:
            count = cap - m if self.problem.samples is not None else min(cap - m, max(8, m // 2))
            generator = self._generator(m)
            return random_rows(count, self.loss.features.d, self.problem.norm, generator, self.candidates)
        loss = self._part(max(m, 1))
        residual = loss.bare_residual() if fit is None else fit.residual
        if fit is None and self.attempt:
            return random_rows(max(1, cap // 4), loss.features.d, self.problem.norm, self._generator(), residual)
        if self.blind:
            found = pooled_proposals(loss, residual, self.problem.norm, self._generator(m))
        else:
            found = moment_proposals(loss, residual, self.problem.norm)
        most = max(1, cap // 2) if fit is None else min(cap - m, max(1, int(self.method.growth * m)))
        return found.rows[: max(1, min(most, found.outside))]

    def _refit(self, candidates: Float[Tensor, "m d"]) -> Fits:
        """Refinement after candidates were removed: patient where iterations are cheap, quick to judge where not."""
        fit = self._fit(candidates)
        if self.dense:
            return (yield from self._refine(fit, 60, stall=8))
        return (yield from self._refine(fit, 60, stall=5, stall_factor=0.7))

    def _refine(
        self, fit: Fit, iterations: int, stall: int, pace: Pace | None = None, stall_factor: float = 0.9
    ) -> Fits:
        rule = Levenberg(10 if self.dense else 0, 0.1, 1e-4 if self.dense else 1e-3, stall, stall_factor)
        loss = self._part(len(fit.candidates))
        for refined in rule.refine(loss, fit, self.problem.norm, iterations, self.converged, pace):
            fit = refined
            self.iteration += 1
            yield fit
        return fit

    def _watching(self, best: Fit, trial: Fits) -> Fits:
        """Runs a trial while showing the best so far: what an interruption keeps is never a half-done trial."""
        while True:
            try:
                next(trial)
            except StopIteration as end:
                return end.value
            yield best

    def _fit(self, candidates: Float[Tensor, "m d"]) -> Fit:
        return self._part(len(candidates)).fit(candidates)

    def _part(self, m: int) -> SpanLoss:
        """The loss on as many rows as m candidates need, with the affine part where that is affordable."""
        growing = self.dense and self.phase in (GROW, REGROW)
        number = self.method.growing_rows_a_number if growing else self.method.rows_a_number
        return self._rows_for(m, number, self.dense)

    @property
    def converged(self) -> float:
        """The loss that counts as the floor: that of bfloat16 is far higher."""
        coarse = self.problem.coarse is not self.loss and self.phase in (GROW, REGROW)
        return max(self.method.converged, COARSE_FLOOR) if coarse else self.method.converged

    def _rows_for(self, m: int, rows_a_number: float, affine: bool = False) -> SpanLoss:
        p, d = self.loss.features.p, self.loss.features.d
        rows = min(p, math.ceil(rows_a_number * d * max(m, 8) / 1024) * 1024)
        if (rows, affine) not in self._parts:
            whole = self.problem.coarse if self.phase in (GROW, REGROW) else self.loss
            self._parts[rows, affine] = whole.part(rows, affine)
        return self._parts[rows, affine]

    def _hopeless(self, best: Fit) -> bool:
        """Enough rounds; fewer where the residual has no structure left, as with noise on the weights."""
        if self.rounds >= self.method.rounds:
            return True
        if not self.dense:
            return self.failures >= 8
        if self.failures < 6:
            return False
        loss = self._part(len(best.candidates))
        return moment_proposals(loss, best.residual, self.problem.norm).outside == 0

    def _generator(self, m: int = 0) -> torch.Generator:
        return self.problem.generator(self.unit * 100_003 + m)

    # --- what others see

    def step(self, fit: Fit) -> Step:
        notes: dict[str, float] = {"candidates": len(fit.candidates), "phase": self.phase}
        # while a second attempt is under way, the first one is what an interruption should keep
        candidates = self.kept if self.attempt and self.phase != DONE else fit.candidates
        return Step(self.iteration, candidates, fit.loss, self.boundary, notes)

    def _save(self) -> State:
        tensors = {"candidates": self.candidates, "kept": self.kept}
        if self.growth.pace.velocity is not None:
            tensors["velocity"] = self.growth.pace.velocity
        numbers: dict[str, float] = {name: getattr(self, name) for name in _COUNTERS}
        kept_loss = -1.0 if math.isinf(self.kept_loss) else self.kept_loss  # JSON has no infinity
        return State(tensors, {**numbers, **self.growth.numbers(), "passes": self.loss.passes, "kept_loss": kept_loss})

    def _restore(self, state: State) -> None:
        self.candidates = state.tensors["candidates"].to(self.problem.device)
        self.kept = state.tensors["kept"].to(self.problem.device)
        self.kept_loss = math.inf if state.numbers["kept_loss"] < 0 else state.numbers["kept_loss"]
        self.growth = _Growth.restored(state.numbers, state.tensors.get("velocity"))
        self.loss.counter.total = state.numbers["passes"]
        for name in _COUNTERS:
            setattr(self, name, int(state.numbers[name]))


_COUNTERS = ("phase", "unit", "iteration", "rounds", "failures", "cap", "attempt")


@dataclass
class _Growth:
    """Whether adding candidates still pays."""

    best: float = math.inf
    since: int = 0  # candidates added since the cross-validated loss last fell
    added: int = 0
    paying: bool = False  # the last stage made the loss fall so much that it is repeated
    pace: Pace = field(default_factory=Pace)

    def judge(self, score: float) -> None:
        self.since = 0 if score < 0.99 * self.best else self.since + self.added
        self.best = min(self.best, score)

    def goes_on(self, fit: Fit, cap: int, converged: float) -> bool:
        if fit.loss <= converged:
            return False
        m = len(fit.candidates)
        return self.paying or (m < cap and self.since <= max(4, m // 6))

    def numbers(self) -> dict[str, float]:
        best = -1.0 if math.isinf(self.best) else self.best  # JSON has no infinity
        return {
            "best": best,
            "since": self.since,
            "added": self.added,
            "paying": int(self.paying),
            "damping": self.pace.damping,
            "raise_by": self.pace.raise_by,
        }

    @classmethod
    def restored(cls, numbers: dict[str, float], velocity: Tensor | None) -> "_Growth":
        best = math.inf if numbers["best"] < 0 else numbers["best"]
        pace = Pace(numbers["damping"], numbers["raise_by"], velocity)
        return cls(best, int(numbers["since"]), int(numbers["added"]), bool(numbers["paying"]), pace)
