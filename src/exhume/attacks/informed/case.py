"""What an informed adversary is given, and the verdict: on held-out rows, where φ(Vx + b) leaves any to spare.

A generalised linear model with an intercept, φ(x) = (x, 1), gives its missing sample away in closed form but has no
weight to spare: where all samples are known to have one norm, that of the result is the only equation left.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import unjudged
from exhume.attacks.foundation.given import Given, of_the_head
from exhume.attacks.foundation.judgement import Facts, Judgement, Resources
from exhume.attacks.informed.missing_sample import ACTIVE, MissingSample, remainder, solve_linear
from exhume.attacks.single_layer.case import RidgeCase
from exhume.attacks.single_layer.span import SpanLoss
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.held_out import HeldOut
from exhume.known import Known
from exhume.observation import Observation
from exhume.reconstruction import Certificate, Outcome

NORM_RIGHT = 1e-6  # the square of an error of one thousandth, which no wrong sample has by chance
EXPLAINED = 1e-10  # a held-out loss below which known samples and one more are all; of so few none can hide
ENOUGH = 6  # rows for each dimension that a search uses; more do not make it more exact


@dataclass(frozen=True, eq=False, repr=False)
class InformedProblem:
    """`solved` is the sample in closed form, where there is one; `missing` the search, where φ is not linear.

    `norm` is that of the samples where the features cannot tell it.
    """

    loss: SpanLoss
    missing: MissingSample | None
    solved: Float[Tensor, " d"] | None
    norm: float | None

    def starts(self) -> Iterator[Float[Tensor, " d"]]:
        if self.solved is not None:
            yield self.at_norm(self.solved)
            return
        assert self.missing is not None, "a linear model is solved in closed form"
        found = self.missing.linear_part()
        size = self.norm or found.shape[0] ** 0.5
        for sign in (1.0, -1.0):
            yield sign * size * found / found.norm()

    def at_norm(self, candidate: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        if self.norm is None:
            return candidate
        return candidate * (self.norm / candidate.norm().clamp_min(torch.finfo(candidate.dtype).tiny))


@dataclass(frozen=True, eq=False)
class InformedCase:
    observation: Observation
    known: Known
    problem: InformedProblem
    ridge: RidgeCase | None
    facts: Facts = field(default_factory=dict)

    @classmethod
    def open(cls, observation: Observation, seed: int, held_out: float, resources: Resources) -> "InformedCase":
        known = observation.known
        if known is None:
            raise UsageError(
                "expected the samples that are known, found none; give --known FILE ('exhume known RUN' writes one)"
            )
        _check(observation, known)
        features = observation.ridge
        if features.activation.linear:
            return cls._linear(observation, known, resources)
        ridge = RidgeCase.open(observation.knowing(len(known) + 1), True, seed, held_out, resources)
        used, n = ridge.problem.loss.features, len(known) + 1
        rows = min(used.p, ENOUGH * used.d + 4 * n)
        if rows < observation.d + n:
            raise UsageError(
                f"expected at least d + n = {observation.d + n} weights for a missing sample, found {rows} to use"
            )
        weights = observation.weights[:, :rows]
        missing = MissingSample(used.part(0, rows), weights, known, ridge.problem.loss.counter)
        norm = ridge.problem.norm if features.norm_blind else None
        solved = _solved(observation, known, used.part(0, rows))
        facts = {"known_samples": len(known), "closed_form": solved is not None}
        problem = InformedProblem(ridge.problem.loss, missing, solved, norm)
        return cls(observation, known, problem, ridge, facts)

    @classmethod
    def _linear(cls, observation: Observation, known: Known, resources: Resources) -> "InformedCase":
        features = observation.ridge
        if known.penalty is None:
            raise UsageError(
                "expected labels, loss and penalty of the known samples, without which a linear model hides the "
                "missing one among them, found none in the file"
            )
        target = remainder(features, observation.weights, known, len(known) + 1)
        solved = solve_linear(features, target, torch.ones_like(target, dtype=torch.bool))
        loss = SpanLoss(features, observation.weights, resources.dtype, resources.device)
        norm = (observation.knowledge.norm or observation.d**0.5) if features.bias is None else None
        facts = {"known_samples": len(known), "closed_form": True}
        return cls(observation, known, InformedProblem(loss, None, solved, norm), None, facts)

    @property
    def held_out(self) -> HeldOut:
        if self.ridge is None:
            looked_at = "all weights were fitted, and the norm is what was left to judge by"
            return HeldOut("norms of samples", torch.arange(int(self._checks_norm)), looked_at)
        looked_at = "they take part in the outputs of the known samples, which tell the coefficients of these"
        return replace(self.ridge.held_out, looked_at=looked_at if self.problem.solved is not None else "")

    def unseen_loss(self, candidates: Float[Tensor, "m d"]) -> float | None:
        if self.ridge is None:
            return self._by_norm(candidates).held_out_loss
        return self.ridge.unseen_loss(torch.cat([self.known.inputs.to(candidates), candidates]))

    @property
    def given(self) -> Given:
        given = of_the_head(self.observation)
        if self.problem.norm is None and not self._checks_norm:
            given.pop("norm", None)
        given |= {"samples": f"{len(self.known) + 1:,}", "records": f"all samples but one: {len(self.known):,}"}
        if self.problem.solved is not None:
            given["labels"] = "of the known samples, with the loss and the penalty"
        return given

    @property
    def _checks_norm(self) -> bool:
        """Whether the norm is left to judge the result by, where no weight is."""
        return self.ridge is None and self.problem.norm is None and self.observation.knowledge.norm is not None

    def lift(self, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        return candidates.to(self.observation.weights.dtype)

    def judge(self, candidates: Float[Tensor, "m d"]) -> Judgement:
        """The known samples are candidates as well, which nobody doubts."""
        if self.ridge is None:
            coefficients = torch.ones(len(candidates), len(self.observation.weights), dtype=torch.float64)
            return Judgement(0.0, coefficients, self._by_norm(candidates))
        everyone = torch.cat([self.known.inputs.to(candidates), candidates])
        judged, j = self.ridge.judge(everyone), len(self.known)
        certificate = judged.certificate
        confidence = certificate.confidence[j:]
        trusted = bool(confidence) and min(confidence) >= 0.5
        outcome = certificate.outcome
        if outcome is Outcome.PARTIAL and not trusted:
            outcome = Outcome.NOT_CONVERGED
        elif outcome is Outcome.PARTIAL and certificate.held_out_loss is not None:
            outcome = Outcome.RECOVERED if certificate.held_out_loss <= EXPLAINED else Outcome.PARTIAL
        verdict = Certificate(outcome, certificate.held_out_loss, certificate.held_out_rows, confidence)
        return Judgement(judged.loss, judged.coefficients[j:], verdict)

    def _by_norm(self, candidates: Float[Tensor, "1 d"]) -> Certificate:
        norm = self.observation.knowledge.norm
        if norm is None or not self._checks_norm:
            return unjudged(1)
        off = (float(candidates.norm()) / norm - 1) ** 2
        right = off <= NORM_RIGHT
        return Certificate(Outcome.RECOVERED if right else Outcome.SPURIOUS, off, 1, (1.0 if right else 0.0,))


def _solved(observation: Observation, known: Known, used: RidgeFeatures) -> Float[Tensor, " d"] | None:
    """ReLU on its active rows; None where the fit is not known, or φ has no linear piece."""
    features = observation.ridge
    if known.penalty is None or not features.activation.rectifier:
        return None
    target = remainder(features, observation.weights, known, len(known) + 1)[: used.p]
    active = target.abs() > ACTIVE * target.abs().max()
    return solve_linear(used, target, active) * (target.sum().sign() if features.bias is None else 1.0)


def _check(observation: Observation, known: Known) -> None:
    known_count = observation.knowledge.samples
    if known_count is not None and known_count != len(known) + 1:
        raise UsageError(f"expected all samples but one of {known_count} to be known, found {len(known)}")
    if known.inputs.shape[1] != observation.d:
        raise UsageError(f"expected known samples of dimension {observation.d}, found {known.inputs.shape[1]}")
