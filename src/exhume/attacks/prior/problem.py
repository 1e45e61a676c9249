"""What the attack with a prior on images is given, and the verdict on what it finds."""

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from scipy.special import chdtri
from torch import Tensor

from exhume.attacks.foundation.certificate import LUCK, unjudged
from exhume.attacks.foundation.given import Given
from exhume.attacks.foundation.judgement import Facts, Judgement, Resources
from exhume.attacks.foundation.parametrisation import LoweredRows, Subspace
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.prior.loss import PriorFit, PriorLoss
from exhume.attacks.prior.newton import cross_validated
from exhume.attacks.prior.posterior import spread
from exhume.attacks.prior.resolution import Resolution, expected_cosines, free_numbers, ladder, trust
from exhume.attacks.prior.search import Level, SearchRows
from exhume.attacks.prior.spectrum import FrequencySpectrum, ImageBasis, SpanBasis
from exhume.attacks.single_layer.case import RidgeCase
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.pruning import without_copies
from exhume.attacks.single_layer.span import SpanLoss
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import hold
from exhume.frequencies import ImageShape
from exhume.held_out import HeldOut
from exhume.reconstruction import Certificate, Outcome

ROWS_A_NUMBER = 20  # rows that are looked at for each number of a candidate: more only cost time
HELD_BYTES = 2**32  # for V in all its frequencies; where it needs more, the finest are left out
LEAST_RESOLUTION = 1024
FEW_WEIGHTS = 100
LEAST_SPARE = 0.03  # of the equations, where nearly all are used up
LOOKALIKE = 0.8  # a cosine between candidates from which only the stronger one is trusted
ABOVE_WHAT_IS_LEFT = 2.5  # a candidate that explains less than this many times what nothing explains may be a mixture
HOPELESS_LOSS = 0.1  # on unseen weights: whole samples are missing above it, and mixtures of them look like samples
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2)  # of unresolved energy, one of which the steering weights choose


@dataclass(frozen=True, eq=False)
class PriorProblem:
    """`whole` is the problem without a prior. `used` and `steering` are rows in the coordinates of `basis`."""

    whole: Problem
    basis: ImageBasis | SpanBasis
    used: SearchRows
    steering: SearchRows | None

    @property
    def loss(self) -> SpanLoss:
        return self.whole.loss

    @property
    def deviation(self) -> float:
        """That of v·x for a sample."""
        rows = self.used.features.rows.block(0, min(4096, self.used.features.p))
        return self.whole.norm * math.sqrt(float(rows.double().square().mean()))

    def rows_for(self, r: int, m: int) -> SearchRows:
        """As many rows as m candidates of r coordinates can make use of."""
        count = min(self.used.features.p, ROWS_A_NUMBER * r * m)
        return replace(self.used, features=self.used.features.part(0, count), weights=self.used.weights[:, :count])

    def unseen(self, loss: PriorLoss, level: Level, fit: PriorFit) -> float | None:
        """The loss on the steering weights; where they are too few to choose by, what cross-validation makes of it.

        None where there are none: nothing is to be chosen then.
        """
        if self.steering is None:
            return None
        if self.steering.weights.numel() < FEW_WEIGHTS:
            return cross_validated(loss, loss.linearise(fit))
        return loss.predict_loss(fit, self.steering.at(level), self.steering.weights)

    def count(self, loss: PriorLoss) -> None:
        """Adds sweeps over some rows and some coordinates to the passes over all of V."""
        part = loss.features.p * loss.features.d / (self.used.features.p * self.basis.d)
        self.loss.counter.total += loss.sweeps * part
        loss.sweeps = 0


@dataclass(frozen=True, eq=False)
class PriorCase:
    """The verdict of weights that the attack never used: at which resolution, and on whom."""

    inner: RidgeCase
    problem: PriorProblem
    unseen: SearchRows | None
    spectrum: FrequencySpectrum
    shape: ImageShape
    given: Given
    facts: Facts = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        inner: RidgeCase,
        spectrum: FrequencySpectrum,
        resources: Resources,
        shape: ImageShape | None,
        *,
        given: Given,
        resolution: int | None = None,
        facts: Facts | None = None,
    ) -> "PriorCase":
        """`inner` is the case without a prior, in pixels or in the coordinates of a subspace; `shape` that of an image.

        `given`: what `inner` makes use of. `resolution`: nothing finer than so many frequencies.
        """
        observation, split = inner.observation, inner.split
        if shape is None:
            raise UsageError("expected an observation of images for --prior image, found other data; leave it out")
        basis, loss = _basis(inner, spectrum, shape), inner.problem.loss
        room = HELD_BYTES if resources.memory_bytes is None else resources.memory_bytes // 4
        finest = basis.r if resolution is None else min(basis.r, resolution)
        basis = basis.cut(min(finest, max(LEAST_RESOLUTION, room // (loss.p * resources.dtype.itemsize))))
        used = _lowered(loss.features, loss.weights, basis, resources)

        def others(start: int, count: int) -> SearchRows | None:
            weights = observation.weights[:, start : start + count]
            if count == 0 or not torch.any(weights):
                return None
            scaled = (weights.double() / loss.scale).to(dtype=resources.dtype, device=resources.device)
            return _lowered(observation.ridge.part(start, start + count), scaled, basis, resources)

        problem = PriorProblem(inner.problem, basis, used, others(split.used, split.steering))
        unseen = others(split.used + split.steering, split.held_out)
        cut = "" if resolution is None else f", nothing finer than {resolution} frequencies"
        given = given | {"shape": "of each sample", "prior": f"image: {spectrum.source}{cut}"}
        return cls(inner, problem, unseen, spectrum, shape, given, facts or {})

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        return self.inner.lift(candidates)

    @property
    def held_out(self) -> HeldOut:
        return self.inner.held_out

    def unseen_loss(self, candidates: Float[Tensor, "m c"]) -> float | None:
        return self.inner.unseen_loss(candidates)

    def judge(self, candidates: Float[Tensor, "m d"]) -> Judgement:
        """By the published loss where that trusts anybody; otherwise at the resolution that unseen weights allow."""
        plain = self.inner.judge(candidates)
        facts: Facts = {"prior": f"image ({self.spectrum.source})", "resolution": None}
        if any(value >= 0.5 for value in plain.certificate.confidence):
            facts["resolution"] = {"frequencies": math.prod(self.shape), "side": min(self.shape[1:])}
            return replace(plain, facts=facts)
        found = self._resolution(candidates)
        if found is None:
            return replace(plain, certificate=unjudged(len(candidates), self.inner.split.held_out), facts=facts)
        facts["resolution"] = self.problem.basis.in_words(found.frequencies) | {"trusted": list(found.trusted)}
        return replace(plain, certificate=self._certificate(found, plain.certificate), facts=facts)

    def _certificate(self, found: Resolution, plain: Certificate) -> Certificate:
        trusted = any(found.trusted)
        confidence = found.confidence if trusted else (0.0,) * len(found.trusted)
        outcome = Outcome.PARTIAL if trusted else plain.outcome
        return replace(plain, outcome=outcome, confidence=confidence)

    def _resolution(self, candidates: Float[Tensor, "m d"]) -> Resolution | None:
        """None where there are no unseen weights."""
        if self.unseen is None:
            return None
        basis, problem = self.problem.basis, self.problem
        places = basis.lower(candidates)
        rungs = ladder(basis.r)
        cuts = [self._best_cut(places[:, :rung]) for rung in rungs]
        last = cuts[-1]
        loss, fit = last.loss, last.fit
        scale = problem.whole.norm**2 / basis.d
        count = self.unseen.weights.numel()
        by_luck = count / float(chdtri(count, 1 - LUCK))  # a few weights may be well predicted by luck
        noise, model, variance = max(last.unseen * by_luck, fit.loss), loss.linearise(fit), scale * basis.variance
        used = free_numbers(model.metric, noise, variance) / loss.weights.numel()
        noise /= max(1 - used, LEAST_SPARE)
        cosines = expected_cosines(fit.candidates, spread(loss, model, noise, variance), rungs)
        if last.unseen > HOPELESS_LOSS:
            cosines = torch.zeros_like(cosines)
        cosines[:, ~without_copies(fit.candidates, fit.coefficients, LOOKALIKE)] = 0
        cosines[:, removal_costs(fit, loss) < ABOVE_WHAT_IS_LEFT * last.unseen] = 0
        return trust(rungs, cosines, [cut.steering for cut in cuts])

    def _best_cut(self, places: Float[Tensor, "m r"]) -> "_Cut":
        """Candidates cut to r coordinates, with the smoothing that predicts the steering weights best."""
        problem, cuts = self.problem, list[_Cut]()
        rows = to_norm(places, problem.whole.norm)
        assert self.unseen is not None
        for share in SHARES if problem.steering is not None else SHARES[:1]:
            variance = problem.basis.variance[: places.shape[1]]
            level = Level(variance, share, 0.0, problem.whole.norm, problem.deviation)
            loss = level.loss(problem.used)
            fit = loss.fit(rows)
            steering = problem.unseen(loss, level, fit)
            unseen = loss.predict_loss(fit, self.unseen.at(level), self.unseen.weights)
            cuts.append(_Cut(loss, fit, unseen if steering is None else steering, unseen))
        return min(cuts, key=lambda cut: cut.steering)


@dataclass(frozen=True, eq=False)
class _Cut:
    loss: PriorLoss
    fit: PriorFit
    steering: float
    unseen: float


def _basis(inner: RidgeCase, spectrum: FrequencySpectrum, shape: ImageShape) -> ImageBasis | SpanBasis:
    """Coarsest first: the frequencies of an image, or the directions of the subspace whose coordinates are attacked."""
    if inner.stands_for is None:
        return spectrum.basis(shape)
    assert isinstance(inner.stands_for, Subspace)
    return SpanBasis.inside(inner.stands_for, spectrum, shape)


def _lowered(
    features: RidgeFeatures, weights: Float[Tensor, "k p"], basis: ImageBasis | SpanBasis, resources: Resources
) -> SearchRows:
    rows = hold(LoweredRows(features.rows, basis, resources.dtype), resources.device, resources.dtype)
    return SearchRows(replace(features, rows=rows), weights)
