"""The attack with a prior on images: what comes back where there are fewer weights than unknowns.

Below p = dn the samples are not determined. But images are not arbitrary: most of their energy is in a few low
frequencies, and p weights are enough for about p / n of them. The plan:

    grow       candidates at a coarse resolution, with the activation averaged over all that is not resolved
               (`smoothing.py`): a smooth landscape in few dimensions
    regrow     drop what explains least, grow again, keep the better result
    sharpen    more frequencies, less smoothing, less weight on the prior, each from what was there before; the result
               is what predicts the steering weights best
    release    where there are more weights than unknowns: on without a prior, down to the pixels (`SplitNewton`)

Objective and solver are in `loss.py` and `newton.py`, the search in `search.py`; which resolution is
to be trusted is decided in `resolution.py`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import Hyperparameter
from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.state import Lasting, State, Step
from exhume.attacks.prior.loss import PriorFit, PriorLoss
from exhume.attacks.prior.problem import PriorCase, PriorProblem
from exhume.attacks.prior.search import Level, PriorFits, grown, grown_freely, parted, pruned, refined, regrown
from exhume.attacks.prior.spectrum import FrequencySpectrum
from exhume.attacks.single_layer.case import RidgeCase
from exhume.attacks.single_layer.method import OnRidgeForm
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.errors import UsageError
from exhume.observation import Observation

FIRST_RESOLUTION = 256
SHARPEN_STEPS = 40
SIZE = 0.2  # the mean square of coefficients to begin with, at weights of mean square 1
WORSE = 1.05  # a loss on the steering weights so much above the best one ends the sharpening
RELEASED_FROM = 1.05  # equations for each unknown number
ROWS_A_CANDIDATE = 20  # where the number of samples is not known, there are no more candidates than this allows


@dataclass(frozen=True)
class Rung:
    """A resolution, as a factor on the first one; the share of energy that is taken to be unresolved; `noise` σ² for
    which the prior is weighed, in units of the weights' mean square; how often to regrow, and how much at most; whether
    candidates that are not needed go, where their number is not known."""

    resolution: float
    unresolved: float
    noise: float
    rounds: int = 0
    dropped: float = 0.65
    prunes: bool = False


PLAN = (
    Rung(1, 0.14, 0.1, rounds=3),
    Rung(2, 0.04, 0.1, rounds=1),
    Rung(4, 0.0, 0.03, rounds=2, dropped=0.35, prunes=True),
    Rung(math.inf, 0.0, 0.03),
    Rung(math.inf, 0.0, 0.01),
    Rung(math.inf, 0.0, 0.003),
    Rung(math.inf, 0.0, 0.001, prunes=True),
)

LASTING = Lasting(
    *("candidates", "kept", "best", "size", "rung", "round", "iteration"), passes="problem.loss.counter.total"
)


@dataclass(frozen=True)
class ImagePrior(OnRidgeForm[PriorProblem]):
    """`spectrum` is what images are expected to look like; `release` goes on without it where that is possible.

    `within`: the data's subspace, where one is known; the prior is then one on its directions. `resolution` is a hard
    cut: nothing finer than so many of the lowest frequencies (or directions), and no release.
    """

    spectrum: FrequencySpectrum = field(default_factory=FrequencySpectrum)
    release: Method[Problem] = field(default_factory=SplitNewton)
    within: SubspaceAttack | None = None
    resolution: int | None = None

    def __post_init__(self) -> None:
        if self.resolution is not None and self.resolution < 1:
            raise UsageError(f"expected a resolution of at least 1 frequency, found {self.resolution}")

    name: ClassVar[str] = "image-prior"
    needs: ClassVar[str] = (
        "It is for images behind features phi(Vx + b), with too few weights for all of them; run it with "
        "'exhume attack --prior image'."
    )
    stands_for: ClassVar[Mapping[str, str]] = {"method": "split-newton", "prior": "image"}
    composition: ClassVar[Composition] = Composition(
        features="φ(Vx + b), averaged over what is not resolved",
        target="its weights, or their change",
        coefficients="free, eliminated",
        parametrisation="frequencies of an image, coarse to fine, with a 1/f prior",
        solver="Gauss-Newton, from moments of the weights",
        knowledge="the last layer, what is before it, and that the samples are images",
        published="here",
        asked="--prior image",
    )
    few_rows = True

    @classmethod
    def hyperparameters(cls) -> Mapping[str, Hyperparameter]:
        """Those of the method that its name stands for."""
        return SplitNewton.hyperparameters()

    @property
    def iterations(self) -> int | None:
        return self.release.iterations

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[PriorProblem]:
        """A prior over the case of pixels, or over that of a subspace's coordinates."""
        if self.within is None:
            inner, facts = RidgeCase.open(observation, self.few_rows, seed, held_out, resources), None
            given = inner.given
        else:
            staged = self.within.open_stages(observation, seed, held_out, resources)
            inner, facts, given = staged.problem.cases[0], staged.facts, staged.given
        shape, finest = observation.image_shape, self.resolution
        return PriorCase.open(inner, self.spectrum, resources, shape, given=given, resolution=finest, facts=facts)

    def steps(self, problem: PriorProblem, resume: State | None = None) -> Iterator[Step]:
        search = _PriorSearch(problem, resume)
        for fit in search.run():
            step = search.step(fit)
            yield step
            if self.iterations is not None and step.iteration >= self.iterations:
                return
        yield from _released(self.release, search, self.resolution is None)


class _PriorSearch:
    """One run, in units after each of which a checkpoint can be taken: a growth, a regrowth, a rung."""

    def __init__(self, problem: PriorProblem, resume: State | None) -> None:
        self.problem = problem
        self.rung, self.round, self.iteration = 0, 0, 0
        self.best, self.size = math.inf, SIZE
        self.kept = self.candidates = torch.zeros(0, 1, dtype=problem.whole.dtype, device=problem.whole.device)
        if resume is not None:
            LASTING.restore(self, resume, problem.whole.device)
        self.boundary = LASTING.save(self)

    def run(self) -> Iterator[PriorFit]:
        while self.rung < len(PLAN):
            level = self._level(PLAN[self.rung])
            loss = level.loss(self.problem.rows_for(level.r, max(len(self.candidates), 8)))
            for fit in self._unit(loss, level):
                self.iteration += 1
                self.problem.count(loss)
                yield fit
            self.boundary = LASTING.save(self)

    def found(self) -> Float[Tensor, "m d"]:
        """The best candidates so far, as samples."""
        kept = self.kept if len(self.kept) else self.candidates
        return self._lifted(kept)

    # --- units

    def _unit(self, loss: PriorLoss, level: Level) -> PriorFits:
        rung = PLAN[self.rung]
        if self.rung == 0 and self.round == 0:
            fit = yield from self._first_growth(loss, level)
        elif self.round == 0:
            fit = yield from refined(loss, loss.fit(self._at(level)), level.norm, SHARPEN_STEPS)
            if self.problem.whole.samples is not None:
                fit = yield from parted(loss, level, fit)
            elif rung.prunes:
                fit = yield from pruned(loss, level, fit, lambda found: self.problem.unseen(loss, level, found))
        else:
            generator = self.problem.whole.generator(1009 * self.rung + self.round)
            fit = yield from regrown(loss, level, loss.fit(self._at(level)), generator, rung.dropped)
        if self.round and self.problem.whole.samples is not None:
            fit = yield from parted(loss, level, fit)
        self.candidates, self.round = fit.candidates, self.round + 1
        if self.round > rung.rounds:
            self._judge(loss, level, fit)
        return fit

    def _first_growth(self, loss: PriorLoss, level: Level) -> PriorFits:
        known_count = self.problem.whole.samples
        if known_count is not None:
            fit = yield from grown(loss, level, None, known_count)
        else:
            most = max(2, loss.weights.numel() // ROWS_A_CANDIDATE)
            fit = yield from grown_freely(loss, level, lambda found: self.problem.unseen(loss, level, found), most)
        self.size = float(fit.coefficients.square().sum(dim=1).mean())
        return fit

    def _judge(self, loss: PriorLoss, level: Level, fit: PriorFit) -> None:
        """Keeps what predicts the steering weights best; where that gets worse, further sharpening would fit noise."""
        score = self.problem.unseen(loss, level, fit)
        self.rung, self.round = self.rung + 1, 0
        if score is None or score < self.best:
            self.kept, self.best = fit.candidates, math.inf if score is None else score
        elif score > WORSE * self.best:
            self.rung = len(PLAN)

    def _level(self, rung: Rung) -> Level:
        basis, whole = self.problem.basis, self.problem.whole
        r = int(min(FIRST_RESOLUTION * rung.resolution, basis.r))
        weight = rung.noise / self.size * (1 - rung.unresolved) * (basis.d / whole.norm**2)
        return Level(basis.variance[:r], rung.unresolved, weight, whole.norm, self.problem.deviation)

    def _at(self, level: Level) -> Float[Tensor, "m r"]:
        """What was found so far, with further frequencies at zero."""
        missing = level.r - self.candidates.shape[1]
        return torch.nn.functional.pad(self.candidates, (0, missing)) if missing > 0 else self.candidates[:, : level.r]

    def _lifted(self, candidates: Float[Tensor, "m r"]) -> Float[Tensor, "m d"]:
        return to_norm(self.problem.basis.cut(candidates.shape[1]).lift(candidates), self.problem.whole.norm)

    # --- what others see

    def step(self, fit: PriorFit) -> Step:
        notes: dict[str, float] = {"candidates": len(fit.candidates), "resolution": fit.candidates.shape[1]}
        shown = self.found() if self.rung >= len(PLAN) else self._lifted(fit.candidates)
        return Step(self.iteration, shown, fit.objective, self.boundary, notes)


def _released(method: Method[Problem], search: _PriorSearch, allowed: bool) -> Iterator[Step]:
    """On from what was found without a prior, where there are more equations than unknowns; the better of both."""
    whole, start = search.problem.whole, search.found()
    before = search.iteration
    last = Step(before, start, search.best if math.isfinite(search.best) else 1.0, search.boundary)
    if not allowed or whole.loss.equations < RELEASED_FROM * start.numel():
        yield last
        return
    for step in method.steps(replace(whole, start=start)):
        last = replace(step, iteration=before + step.iteration, state=search.boundary)
        yield last
    ours, theirs = whole.steering_loss(start), whole.steering_loss(last.candidates)
    if ours is not None and theirs is not None and ours < theirs:
        yield replace(last, candidates=start)
