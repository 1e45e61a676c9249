"""exhume's own attack: grow candidates where the residual points, refine them by Gauss-Newton, and find n on the way.

    grow     add candidates and refine all of them, until the loss is at its floor or nothing is gained
    select   while nothing stands out: keep those that explain most, draw the others anew, refine (`selection.py`)
    regrow   the same where rounds are dear or candidates few: drop the cheapest, grow again, keep what is better
    prune    merge copies, remove what the weights do not need: the number of samples is what remains
    polish   signs, then Gauss-Newton on the published loss down to the rounding of the weights

Two regimes share this plan. Up to `dense_dim` dimensions the free affine part is eliminated exactly, proposals are
eigenvectors of the residual's moment, and each refinement step takes a few conjugate-gradient products: this succeeds
close to the counting limit p = dn. Above, where passes over V are all that counts, candidates start at random, their
number grows by half, and each step is a split step with momentum: two passes. Between its stages copies and ghosts are
taken out and signs set right, which makes room for new candidates and refinement fast.

The plan is here; what its phases work with (rows, refinement, proposals, the floor) is in `search_context.py`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import EXPLAINED, ROUNDING_MARGIN, TRUSTED_ERROR
from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.levenberg import DampingState
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.foundation.state import Lasting, State, Step
from exhume.attacks.single_layer.growth import GROWTH, WORTH, Growth
from exhume.attacks.single_layer.method import RidgeMethod
from exhume.attacks.single_layer.polishing import SETTLED, Polishing
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.removal import Removal, watching
from exhume.attacks.single_layer.search_context import Fits, SearchContext
from exhume.attacks.single_layer.selection import Selection, alike
from exhume.attacks.single_layer.signs import repair_signs
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.standing_out import standing_out
from exhume.attacks.single_layer.turning import Turning, signs_tell
from exhume.observation import Observation

GROW, REGROW, PRUNE, POLISH, DONE, PRUNE_AGAIN, POLISH_AGAIN, SELECT = range(8)
STEERING_GOOD = 1e-3  # a loss on the steering weights that makes another attempt needless
MUCH_LEFT = 1e-3  # a score above which it is more than noise that does not stand out
MORE_AT_FIRST = 1.5  # times as many candidates as growth ended with; then one more a round
SELECTED_FROM = 10  # candidates
SELECTIONS = 5  # times as many rounds at most as may go by without success
MOSTLY_EXPLAINED = 0.1  # a score from which removing candidates helps more than growing new ones
GHOST = 10.0  # times the loss: what a candidate explains that is no sample
START_ITERATIONS = 60  # where only a start is wanted
TURNED_ITERATIONS = 6  # show whether a sign was wrong, near the floor

LASTING = Lasting(
    *("candidates", "kept", "kept_loss", "phase", "unit", "rounds", "failures", "cap", "attempt", "gave_up"),
    iteration="bench.iteration",
    passes="loss.counter.total",
    **GROWTH.under("growth"),
)


@dataclass(frozen=True)
class SplitNewton(RidgeMethod):
    """Hyperparameters; none of them needs a user's hand."""

    iterations: int | None = option(None, "at most so many; default: until it ends by itself, or its time does.")
    converged: float = 1e-10  # a loss that counts as the floor of float32 weights
    dense_dim: int = 256
    stage_iterations: int = 15
    pays: float = 3.0  # a stage is repeated, before candidates are added, while the loss falls by this factor (split)
    growth: float = 0.25  # at most this share of new candidates a stage (dense); 0.5 otherwise
    capacity: float = 0.75  # m d <= capacity k p
    rows_a_number: float = 5.0
    growing_rows_a_number: float = 12.0  # while the residual's moments are looked at (dense)
    rounds: int = 30
    attempts: int = 2  # from different starts; the one that predicts the steering weights best is kept
    exact: bool = option(False, "polish in float64.")

    name: ClassVar[str] = "split-newton"
    auto_place: ClassVar[int | None] = 30
    audit_place: ClassVar[int | None] = 30
    shares_rows: ClassVar[bool] = True
    takes_starts: ClassVar[bool] = True
    composition: ClassVar[Composition] = Composition(
        features="φ(Vx + b), the last layer's",
        target="its weights, or their change",
        coefficients="free, eliminated",
        parametrisation="rows at their norm",
        solver="split Gauss-Newton with growth and pruning",
        knowledge="the last layer, and what is before it",
        published="here, on the loss of Iurada et al. 2025",
    )
    few_rows = True

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        if observation.features.is_network:
            return ()
        first = PlannedAttack(cls.name, "Exact for phi(Vx + b), finds n by itself.", seed)
        if observation.initial_rows is not None:
            return (first,)
        return first, PlannedAttack(cls.name, "Another start, because the first one did not decide.", seed + 1)

    def as_start(self) -> "SplitNewton":
        return replace(self, iterations=START_ITERATIONS, rounds=0, attempts=1)

    def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
        search = _SplitSearch(self, problem, resume)
        for fit in search.run():
            step = search.step(fit)
            yield step
            if self.iterations is not None and step.iteration >= self.iterations and search.phase != DONE:
                yield replace(step, candidates=self.finish(problem, step.candidates))
                return

    def finish(self, problem: Problem, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "few d"]:
        """No more than there are, and their signs: for a search that was stopped before it came to that."""
        if problem.samples is not None and len(candidates) > problem.samples:
            candidates = repair_signs(problem.loss, candidates)  # before it is known what each of them explains
            costs = removal_costs(problem.loss.fit(candidates), problem.loss)
            candidates = candidates[costs.argsort(descending=True)[: problem.samples]]
        return repair_signs(problem.loss, candidates)


class _SplitSearch:
    """One run of the attack, in units after each of which a checkpoint can be taken.

    Everything that outlives a unit is `LASTING`; random numbers follow from the unit's number.
    """

    def __init__(self, method: SplitNewton, problem: Problem, resume: State | None) -> None:
        self.method, self.problem, self.loss = method, problem, problem.loss
        self.bench = SearchContext(method, problem)
        self.removal = Removal(self.bench, problem, method.converged)
        self.selection = Selection(self.bench)
        self.polishing = Polishing(self.bench, problem, method.rows_a_number, method.exact)
        known_count = problem.samples
        self.cap = self.bench.capacity(method.capacity)
        if known_count is not None:  # more to spare find more; where d is large every one of them costs a lot
            self.cap = max(
                known_count, min(self.cap, max(known_count + 4, round((2 if self.bench.dense else 1.25) * known_count)))
            )
        self.phase, self.unit, self.rounds, self.failures = GROW, 0, 0, 0
        self.attempt, self.kept_loss, self.gave_up = 0, math.inf, False
        self.growth = Growth(problem.drifts)
        self.kept = self.candidates = torch.zeros(0, self.loss.features.d, dtype=problem.dtype, device=problem.device)
        if problem.start is not None:
            self.candidates = problem.start.to(self.kept)
            self.growth.paying = True  # what is there is refined before anything is added
        if resume is not None:
            LASTING.restore(self, resume, problem.device)
        self.boundary = LASTING.save(self)

    # --- the plan

    def run(self) -> Iterator[Fit]:
        units = {GROW: self._grow, REGROW: self._regrow, PRUNE: self._prune, POLISH: self._polish}
        units |= {PRUNE_AGAIN: self._prune, POLISH_AGAIN: self._polish, SELECT: self._select}
        while self.phase != DONE:
            self.bench.growing = self.phase in (GROW, REGROW, SELECT)
            fit = yield from units[self.phase]()
            self.candidates = fit.candidates
            if self.phase == DONE:
                self._judge_attempt()
            self.unit += 1
            self.bench.clear()
            self.boundary = LASTING.save(self)
        yield self.loss.to(self.candidates.dtype).fit(self.candidates)

    def _judge_attempt(self) -> None:
        """Keeps the best of several attempts, by weights that none fitted; begins another one where needed."""
        steering = self.problem.steering_loss(self.candidates)
        if steering is None:
            return
        # that two starts end alike says something only of candidates that explain nearly everything
        agreed = self.attempt > 0 and steering < MOSTLY_EXPLAINED and _same(self.candidates, self.kept)
        if steering < self.kept_loss:
            self.kept, self.kept_loss = self.candidates, steering
        self.candidates = self.kept
        self.attempt += 1
        unexplained = self.kept_loss > max(EXPLAINED, ROUNDING_MARGIN * self.problem.rounding)
        another = unexplained and not agreed and not self.problem.drifted and self.method.rounds > 0
        again = self.kept_loss > STEERING_GOOD and self.attempt < self.method.attempts
        self.gave_up = another and not again and not self.problem.timed
        if again or (another and self.problem.timed):
            self.phase, self.rounds, self.failures, self.growth = GROW, 0, 0, Growth(self.problem.drifts)
            self.candidates = self.kept[:0].to(self.problem.dtype)

    def _grow(self) -> Fits:
        """One stage of growth; when nothing is gained by another one, a last refinement."""
        fit = self.bench.fit(self.candidates) if len(self.candidates) else None
        if fit is not None and self._nothing_stands_out(fit):
            self.phase = SELECT
            return fit
        if fit is None or self._goes_on(self.growth, fit):
            return (yield from self._stage(self.growth, fit))
        explained = self.bench.explained(fit)
        if not explained and not self.bench.dense and self.growth.kept is not None:
            fit = self.bench.fit(self.growth.kept)  # the last additions may have fitted noise only
        widest = self.bench.capacity(0.92)
        full = len(fit.candidates) >= self.cap and not explained
        if full and self.cap < widest and self.problem.samples is None:
            self.cap = widest  # close to the counting limit the usual margin may be too narrow for all samples
            return fit
        if not explained:
            fit = yield from self.bench.refine(fit, 40, stall=15)
        done = self.bench.explained(fit) or self._is_drift(fit) or self._at_noise(fit)
        self.phase = PRUNE if done else SELECT if self._selectable(fit) else REGROW
        return fit

    def _regrow(self) -> Fits:
        """Drop the cheapest 15-65 %, grow again, keep what is better."""
        loss = self.bench.part(len(self.candidates))
        best = loss.fit(self.candidates)
        share = 0.15 + 0.5 * float(torch.rand(1, generator=self._generator()))
        count = min(max(2, int(share * len(self.candidates))), len(self.candidates) - 1)
        kept = removal_costs(best, loss).argsort(descending=True)[: len(self.candidates) - count]
        trial = yield from watching(best, self._grow_again(self.candidates[kept]))
        self.rounds += 1
        better = self.bench.score(trial) < self.bench.score(best)
        best = trial if better else best
        self._count_failure(not better)
        if self.bench.explained(best) or self._is_drift(best) or self._hopeless(best):
            self.phase = PRUNE
        return best

    def _select(self) -> Fits:
        """A round of selection; what is shown meanwhile, and kept where nothing comes of it, is the best so far."""
        best = self.bench.fit(self.candidates if self.growth.kept is None else self.growth.kept)
        m = len(self.candidates)
        count = min(self.cap, m + 1 if self.rounds else round(MORE_AT_FIRST * m))
        # from the latest candidates, not from the best: what is found adds up before it shows in the score
        found = yield from watching(best, self.selection.run(self.candidates, count, self._generator()))
        self.rounds += 1
        beaten = self.growth.best
        self.growth.judge(self.bench.score(found.grown), found.grown.candidates)
        self._count_failure(not self.growth.best < WORTH * beaten)
        best = found.grown if self.growth.kept is found.grown.candidates else best
        fit = found.filled
        if self.bench.explained(found.grown) or self._is_drift(found.grown):
            self.phase, fit = PRUNE, found.grown
        elif self._hopeless(best):
            self.phase, fit = PRUNE, best
        return fit

    def _count_failure(self, failed: bool) -> None:
        """A cap with which rounds often fail is raised by one."""
        self.failures = self.failures + 1 if failed else 0
        if self.failures and self.failures % 12 == 0 and self.problem.samples is None:
            self.cap = min(self.cap + 1, self.bench.capacity(0.95))

    def _prune(self) -> Fits:
        """Whatever is not needed goes (`removal.py`)."""
        fit = self.bench.fit(self.candidates)
        if self.problem.coarse is not self.loss:  # coarse products end here
            fit = yield from self.bench.refine(fit, 60, stall=8)
        fit = yield from self.removal.run(fit)
        self.phase = POLISH if self.phase == PRUNE else POLISH_AGAIN
        return fit

    def _polish(self) -> Fits:
        """Signs and the published loss (`polishing.py`).

        Where only this explains the weights, what could not be spared before may be needless now: pruned once more.
        """
        fit, late = yield from self.polishing.run(self.candidates)
        self.phase = PRUNE_AGAIN if late and self.phase == POLISH else DONE
        return fit

    # --- its parts

    def _goes_on(self, growth: Growth, fit: Fit) -> bool:
        return growth.goes_on(len(fit.candidates), self.cap) and not (self.bench.explained(fit) or self._is_drift(fit))

    def _selectable(self, fit: Fit) -> bool:
        """Whether there are enough candidates to tell what stands out of them, and rounds are cheap and asked for."""
        return self.bench.dense and len(fit.candidates) >= SELECTED_FROM and self.method.rounds > 0

    def _nothing_stands_out(self, fit: Fit) -> bool:
        """Whether much is left to explain, but no direction of it stands out, and no candidate either."""
        given = self.problem.start is not None  # candidates that were found elsewhere are no blends
        if given or not self._selectable(fit) or self.bench.blind or self.problem.drifts or self.bench.explained(fit):
            return False
        if self.bench.score(fit) <= MUCH_LEFT or self.bench.structured(fit):
            return False
        return alike(removal_costs(fit, self.bench.part(len(fit.candidates))))

    def _is_drift(self, fit: Fit) -> bool:
        """Whether all that is left, and what some candidates explain, is the drift of the features."""
        if not self.problem.drifted:
            return False
        found = standing_out(self.bench.part(len(fit.candidates)), fit)
        return found is not None and (found.complete or int(found.upper.sum()) == self.problem.samples)

    def _stage(self, growth: Growth, fit: Fit | None) -> Fits:
        """Adds candidates and refines all of them; a stage that pays is repeated before more are added."""
        if fit is None or not growth.paying:
            new = self._propose(fit)
            fit = self.bench.fit(new if fit is None else torch.cat([fit.candidates, new]))
            growth.added, growth.pace = len(new), DampingState()
        else:
            growth.added = 0
        before = fit.loss
        stall = 8 if self.bench.dense else 6
        fit = yield from self.bench.refine(fit, self.method.stage_iterations, stall, growth.pace)
        growth.paying = not self.bench.dense and fit.loss < before / self.method.pays
        growth.judge(self.bench.score(fit), fit.candidates)
        return (yield from self._turn_least(growth, self._trim(growth, fit)))

    def _trim(self, growth: Growth, fit: Fit) -> Fit:
        """New candidates for copies and ghosts on the way: refinement is slow while these hide wrong signs (split)."""
        if self.bench.dense or fit.loss >= growth.trim_below or self.bench.explained(fit):
            return fit
        growth.trim_below = fit.loss  # again only when it has fallen further
        stuck = fit.loss <= SETTLED and not growth.paying  # then what explains less than is left stands in the way
        kept = self.removal.needed(fit, at_least=fit.loss if stuck else 0.0)
        if torch.equal(kept, fit.candidates):
            return fit
        growth.pace.velocity, growth.paying = None, growth.paying or stuck
        if fit.loss > SETTLED:
            fresh = self.bench.random_start(len(fit.candidates) - len(kept), self._generator(self.bench.iteration))
            kept = torch.cat([kept, fresh])
        return self.bench.fit(kept)

    def _turn_least(self, growth: Growth, fit: Fit) -> Fits:
        """While candidates are still added: one sign, where all samples are likely there and nothing else helps."""
        waits = self.bench.dense or growth.paying or fit.loss > SETTLED or self.bench.explained(fit)
        if waits or not signs_tell(self.loss):
            return fit

        def refine(_: SpanLoss, turned: Fit) -> Fits:
            return self.bench.refine(turned, TURNED_ITERATIONS, stall=3)

        turned = yield from Turning(refine, GHOST, tries=1).run(self.bench.part(len(fit.candidates)), fit)
        if turned is not fit:
            growth.pace, growth.paying = DampingState(), True
        return turned

    def _propose(self, fit: Fit | None) -> Float[Tensor, "count d"]:
        generator = self._generator(0 if fit is None else len(fit.candidates))
        if fit is None and self.attempt and self.bench.dense:  # another start than the eigenvectors of the first
            return self.bench.random_start(max(1, self.cap // 4), generator)
        return self.bench.propose(fit, self.cap, generator)

    def _grow_again(self, candidates: Float[Tensor, "m d"]) -> Fits:
        fit, growth = self.bench.fit(candidates), Growth(self.problem.drifts)
        while self._goes_on(growth, fit):
            fit = yield from self._stage(growth, fit)
        if not self.bench.dense and growth.kept is not None:
            fit = self.bench.fit(growth.kept)
        return (yield from self.bench.refine(fit, 40, stall=15))

    def _hopeless(self, best: Fit) -> bool:
        """Enough rounds; fewer where only the drift of the features may be left, or no structure (regrowth)."""
        if self._at_noise(best) and not self.bench.structured(best):
            return self.failures >= 2 or self.rounds >= self.method.rounds
        if self.phase == SELECT:
            return self.failures >= self.method.rounds or self.rounds >= SELECTIONS * self.method.rounds
        return self.rounds >= self.method.rounds or (self.failures >= 6 and not self.bench.structured(best))

    def _at_noise(self, fit: Fit) -> bool:
        """Whether unseen weights are explained so well that what is left may be noise (features that drifted)."""
        if self.bench.dense and (not self.problem.drifts or self.bench.structured(fit)):
            return False
        return self.bench.score(fit) < MOSTLY_EXPLAINED

    def _generator(self, m: int = 0) -> torch.Generator:
        return self.problem.generator(self.unit * 100_003 + m)

    # --- what others see

    def step(self, fit: Fit) -> Step:
        notes: dict[str, float] = {"candidates": len(fit.candidates), "phase": self.phase}
        # while a second attempt is under way, the first one is what an interruption should keep
        candidates = self.kept if self.attempt and self.phase != DONE else fit.candidates
        facts: dict[str, object] = {"starts": self.attempt} if self.phase == DONE and self.gave_up else {}
        return Step(self.bench.iteration, candidates, fit.loss, self.boundary, notes, facts)


def _same(one: Float[Tensor, "m d"], other: Float[Tensor, "q d"]) -> bool:
    """Whether two attempts ended at the same candidates: then another one would, too."""
    if len(one) != len(other):
        return False
    away = torch.cdist(one.double(), other.double()) / other.double().norm(dim=1).clamp_min(1e-300)
    return bool((away.amin(dim=0) < TRUSTED_ERROR).all() and (away.amin(dim=1) < TRUSTED_ERROR).all())
