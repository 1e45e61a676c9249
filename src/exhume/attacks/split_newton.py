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

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.levenberg import Levenberg
from exhume.attacks.problem import Problem, State, Step
from exhume.attacks.proposals import capacity, moment_proposals, random_rows
from exhume.attacks.pruning import cross_validated, removal_costs, without_copies
from exhume.attacks.signs import repair_signs
from exhume.attacks.span import Fit, SpanLoss
from exhume.errors import UsageError

GROW, REGROW, PRUNE, POLISH, DONE = range(5)
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
    rounds: int = 60
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
            yield search.step(fit)
            if search.iteration >= self.iterations:
                return


class _Search:
    """One run of the attack. Its state between two stages is all that a checkpoint needs."""

    def __init__(self, method: SplitNewton, problem: Problem, resume: State | None) -> None:
        self.method, self.problem, self.loss = method, problem, problem.loss
        p, d = self.loss.features.p, self.loss.features.d
        self.dense = d <= method.dense_dim
        limit = capacity(p, d, method.capacity)
        told = problem.samples
        self.cap = limit if told is None else told if self.dense else min(limit, max(told + 2, round(1.25 * told)))
        self.phase, self.stage, self.iteration, self.rounds, self.failures = GROW, 0, 0, 0, 0
        self.candidates = torch.zeros(0, d, dtype=problem.dtype, device=problem.device)
        self.floor_reached = False
        if resume is not None:
            self._restore(resume)
        self.boundary = self._save()
        self._parts: dict[tuple[int, bool], SpanLoss] = {}

    # --- the plan

    def run(self) -> Iterator[Fit]:
        stages = {GROW: self._grow, REGROW: self._regrow, PRUNE: self._prune, POLISH: self._polish}
        while self.phase != DONE:
            fit = yield from stages[self.phase]()
            self.candidates = fit.candidates
            self.stage += 1
            self._parts.clear()  # so that a resumed run does, and counts, the same
            self.boundary = self._save()

    def _grow(self) -> Fits:
        fit = yield from self._grow_from(self.candidates, self.cap)
        fit = yield from self._refine(fit, 40, stall=15)
        done = fit.loss <= self.method.converged
        self.phase = PRUNE if done else REGROW
        return fit

    def _regrow(self) -> Fits:
        """Drop the cheapest 15-65 %, grow again, keep what is better; a cap that fails often is raised by one."""
        loss = self._part(len(self.candidates))
        best = loss.fit(self.candidates)
        generator = self._generator()
        share = 0.15 + 0.5 * float(torch.rand(1, generator=generator))
        count = min(max(2, int(share * len(self.candidates))), len(self.candidates) - 1)
        kept = removal_costs(best, loss).argsort(descending=True)[: len(self.candidates) - count]
        trial = yield from self._watching(best, self._grow_from(self.candidates[kept], self.cap))
        trial = yield from self._watching(best, self._refine(trial, 40, stall=15))
        self.rounds += 1
        better = cross_validated(self._part(len(trial.candidates)), trial) < cross_validated(loss, best)
        best, self.failures = (trial, 0) if better else (best, self.failures + 1)
        if self.failures and self.failures % 12 == 0 and self.problem.samples is None:
            self.cap = min(self.cap + 1, capacity(self.loss.features.p, self.loss.features.d, 0.95))
        if best.loss <= self.method.converged or self._hopeless(best):
            self.phase = PRUNE
        return best

    def _prune(self) -> Fits:
        """Merge copies, then remove the cheapest for as long as the refitted loss stays where it was."""
        loss = self._part(len(self.candidates))
        fit = loss.fit(self.candidates)
        kept = without_copies(fit)
        if not bool(kept.all()):
            trial = yield from self._watching(fit, self._refit(fit.candidates[kept]))
            if trial.loss <= max(10 * fit.loss, self.method.converged):
                fit = trial
        fit = yield from self._remove_cheap(fit)
        resisted = 0
        while len(fit.candidates) > 1 and resisted < 2 and self.problem.samples != len(fit.candidates):
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
        candidates = self.candidates
        if self.loss.features.activation.linear_plus_even and self.loss.features.bias is None:
            candidates = repair_signs(loss, candidates)
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

    def _grow_from(self, candidates: Float[Tensor, "m d"], cap: int) -> Fits:
        fit = self._fit(candidates) if len(candidates) else None
        best, since = float("inf"), 0
        while fit is None or (
            len(fit.candidates) < cap and fit.loss > self.method.converged and since <= max(4, len(fit.candidates) // 6)
        ):
            new = self._propose(fit, cap)
            grown = new if fit is None else torch.cat([fit.candidates, new])
            fit = yield from self._stage(self._fit(grown))
            score = cross_validated(self._part(len(fit.candidates)), fit)
            since = 0 if score < 0.99 * best else since + len(new)
            best = min(best, score)
        return fit

    def _propose(self, fit: Fit | None, cap: int) -> Float[Tensor, "count d"]:
        m = 0 if fit is None else len(fit.candidates)
        if not self.dense:
            told = self.problem.samples is not None
            count = cap - m if told else max(8, min(cap - m, m // 2))
            return random_rows(
                min(count, cap - m), self.loss.features.d, self.problem.norm, self._generator(m), self.candidates
            )
        loss = self._part(max(m, 1))
        residual = loss.bare_residual() if fit is None else fit.residual
        found = moment_proposals(loss, residual, self.problem.norm)
        most = max(1, cap // 2) if fit is None else min(cap - m, max(1, int(self.method.growth * m)))
        return found.rows[: max(1, min(most, found.outside))]

    def _stage(self, fit: Fit) -> Fits:
        """Refinement after candidates were added: a few iterations, or for as long as they pay (split steps)."""
        if self.dense:
            return (yield from self._refine(fit, self.method.stage_iterations, stall=8))
        stage = self.method.stage_iterations
        return (yield from self._refine(fit, 8 * stage, stall=5, stall_factor=0.5, grace=stage))

    def _refit(self, candidates: Float[Tensor, "m d"]) -> Fits:
        """Refinement after candidates were removed: patient where iterations are cheap, quick to judge where not."""
        fit = self._fit(candidates)
        if self.dense:
            return (yield from self._refine(fit, 60, stall=8))
        return (yield from self._refine(fit, 60, stall=3, stall_factor=0.5))

    def _refine(self, fit: Fit, iterations: int, stall: int, stall_factor: float = 0.9, grace: int = 0) -> Fits:
        products = 10 if self.dense else 0
        floor = 1e-4 if self.dense else 1e-3
        rule = Levenberg(products, damping_floor=floor, stall=stall, stall_factor=stall_factor, grace=grace)
        loss = self._part(len(fit.candidates))
        for refined in rule.refine(loss, fit, self.problem.norm, iterations, until=self.method.converged):
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
        return self._rows_for(
            m, self.method.growing_rows_a_number if growing else self.method.rows_a_number, self.dense
        )

    def _rows_for(self, m: int, rows_a_number: float, affine: bool = False) -> SpanLoss:
        p, d = self.loss.features.p, self.loss.features.d
        needed = rows_a_number * d * max(m, 8)
        rows = min(p, -(-int(needed) // 1024) * 1024)
        key = (rows, affine)
        if key not in self._parts:
            self._parts = {kept: part for kept, part in self._parts.items() if kept[0] >= rows // 2}
            part = self.loss.part(rows, affine)
            self._parts[key] = part
        return self._parts[key]

    def _hopeless(self, best: Fit) -> bool:
        """Enough rounds; fewer where the residual has no structure left, as with noise on the weights."""
        if self.rounds >= self.method.rounds:
            return True
        if self.failures < 3 or not self.dense:
            return self.failures >= 8
        loss = self._part(len(best.candidates))
        return moment_proposals(loss, best.residual, self.problem.norm).outside == 0 and self.failures >= 6

    def _generator(self, m: int = 0) -> torch.Generator:
        """A stream for each stage and number of candidates, so that a resumed run draws what it would have drawn."""
        return self.problem.generator(self.stage * 100_003 + m)

    # --- what others see

    def step(self, fit: Fit) -> Step:
        return Step(
            self.iteration,
            fit.candidates,
            fit.coefficients,
            fit.loss,
            self.phase == DONE or fit.loss <= self.method.converged,
            self.boundary,
            {"candidates": len(fit.candidates), "phase": self.phase},
        )

    def _save(self) -> State:
        numbers: dict[str, float] = {
            "phase": self.phase,
            "stage": self.stage,
            "iteration": self.iteration,
            "rounds": self.rounds,
            "failures": self.failures,
            "cap": self.cap,
            "passes": self.loss.passes,
        }
        return State({"candidates": self.candidates}, numbers)

    def _restore(self, state: State) -> None:
        self.candidates = state.tensors["candidates"].to(self.problem.device)
        self.loss.counter.total = state.numbers["passes"]
        for name in ("phase", "stage", "iteration", "rounds", "failures", "cap"):
            setattr(self, name, int(state.numbers[name]))
