"""Features φ(Vx + b): rows that the attack uses, rows that steer it, rows for the verdict."""

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import machine
from exhume.attacks.foundation.certificate import RowSplit, rounding_noise, split_rows
from exhume.attacks.foundation.given import Given, of_the_head
from exhume.attacks.foundation.homogeneous import Homogeneous, in_homogeneous_coordinates, tells_norms
from exhume.attacks.foundation.judgement import Facts, Judgement, Resources
from exhume.attacks.foundation.parametrisation import LoweredRows, Parametrisation
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.single_layer.admission import check_features
from exhume.attacks.single_layer.certificate import certify, loss_on
from exhume.attacks.single_layer.memory_plan import MemoryPlan, Sizes, room_for
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.span import SpanLoss
from exhume.errors import ExhumeError
from exhume.features.rows import Rows, hold
from exhume.held_out import HeldOut
from exhume.observation import Observation


@dataclass(frozen=True, eq=False)
class RidgeCase:
    """`stands_for`: which samples the candidates of this case are coordinates of; None: they are the samples."""

    observation: Observation
    split: RowSplit
    problem: Problem
    stands_for: Parametrisation | None = None
    facts: Facts = field(default_factory=dict)
    given: Given = field(default_factory=dict)

    @classmethod
    def of(
        cls, observation: Observation, few_rows: bool, seed: int, held_out: float, resources: Resources
    ) -> "RidgeCase":
        """With norms as part of what is found, where weights tell them."""
        if not tells_norms(observation):
            return cls.open(observation, few_rows, seed, held_out, resources)
        case = cls.open(in_homogeneous_coordinates(observation), few_rows, seed, held_out, resources)
        return replace(case, stands_for=Homogeneous(observation.d), given=of_the_head(observation))

    @classmethod
    def open(
        cls, observation: Observation, few_rows: bool, seed: int, held_out: float, resources: Resources
    ) -> "RidgeCase":
        """V is held in memory where it fits; where it does not, a method that can do with `few_rows` gets as many.

        Of several ranks each takes its own share of these rows, and has memory for as many.
        """
        features, ranks = observation.ridge, resources.ranks
        check_features(features, ranks)
        split = split_rows(features.p, held_out)
        room = _room(observation, split.used, few_rows, resources)
        used = room.rows
        features = ranks.share.of(features.part(0, used))
        if room.held and features.rows.held is None:
            features = replace(features, rows=hold(features.rows, resources.device, resources.dtype))
        weights = ranks.share.columns(observation.weights[:, :used])
        free = free_norms(observation)
        loss = SpanLoss(features, weights, resources.dtype, resources.device, ranks, free)
        coarse = loss
        if resources.products != resources.dtype:
            coarse = loss.with_rows(replace(hold(features.rows, resources.device, resources.products), coarse=True))

        def steering_loss(candidates: Tensor, coefficients: Tensor | None = None) -> float | None:
            if coefficients is None:
                coefficients = loss.to(candidates.dtype).fit(candidates).coefficients
            return loss_on(observation, split.used, split.steering, candidates, coefficients * loss.scale, ranks)

        problem = Problem(
            loss=loss,
            coarse=coarse,
            norm=observation.knowledge.norm or math.sqrt(observation.d),
            samples=observation.knowledge.samples,
            seed=seed,
            steering_loss=steering_loss,
            rounding=rounding_noise(observation.weights),
            dtype=resources.dtype,
            device=resources.device,
            at_most=room.candidates,
            timed=resources.timed,
        )
        return cls(observation, split, problem, given=of_the_head(observation))

    def judge(self, candidates: Float[Tensor, "m d"]) -> Judgement:
        """On all rows and without any help that the method may have used on the way: the published loss."""
        loss, split = self.problem.loss.to(candidates.dtype), self.split  # a polish ends in a precision of its own
        final = loss.fit(candidates)
        coefficients = final.coefficients * loss.scale
        drifted, weights = self.observation.ridge.trained, self.observation.weights
        lift = None if self.stands_for is None else self.stands_for.lift
        counted = self.observation.knowledge.samples == len(candidates)
        certificate = certify(loss, final, self._unseen, split, weights, drifted, lift, self._whole, counted)
        doubtful = {kind: list(those) for kind, those in certificate.doubtful.items()}
        facts: Facts = {"doubts": certificate.doubts, "doubtful": doubtful} if doubtful else {}
        return Judgement(final.loss, coefficients, certificate, facts)

    def _whole(self, rows: int) -> SpanLoss:
        """The loss on the first rows, none of them on another rank."""
        loss, features, weights = self.problem.loss, self.observation.ridge, self.observation.weights
        rows, kind = min(rows, loss.p), loss.weights
        return SpanLoss(features.part(0, rows), weights[:, :rows], kind.dtype, kind.device, free_norms=loss.free_norms)

    def unseen_loss(self, candidates: Float[Tensor, "m d"]) -> float | None:
        loss = self.problem.loss
        return self._unseen(candidates, loss.to(candidates.dtype).fit(candidates).coefficients * loss.scale)

    def _unseen(self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"]) -> float | None:
        split, ranks = self.split, self.problem.loss.ranks
        return loss_on(self.observation, split.used + split.steering, split.held_out, candidates, coefficients, ranks)

    @property
    def held_out(self) -> HeldOut:
        first = self.split.used + self.split.steering
        return HeldOut("weights of the last layer", torch.arange(first, first + self.split.held_out))

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        """The samples that candidates of this case stand for."""
        return candidates if self.stands_for is None else self.stands_for.lift(candidates)


def free_norms(observation: Observation) -> bool:
    """Whether norms are unknowns of a search: nobody knows them, and features tell a norm from a coefficient."""
    return observation.knowledge.norm is None and not observation.ridge.norm_blind


def seen_through(observation: Observation, parametrisation: Parametrisation, resources: Resources) -> Observation:
    """The observation in the coordinates z of x = U z: rows V U, held where they fit, and everything else as it was."""
    features = observation.ridge
    if parametrisation.d != observation.d:
        raise ExhumeError(
            f"expected a subspace of the d = {observation.d} dimensions of the data, found one of {parametrisation.d}"
        )
    rows: Rows = LoweredRows(features.rows, parametrisation, resources.dtype)
    if rows.p <= _rows_that_fit(rows.d, resources.dtype, resources.memory_bytes, resources.ranks):
        rows = hold(rows, resources.device, resources.dtype)
    knowledge = observation.knowledge
    if not free_norms(observation):
        knowledge = replace(knowledge, norm=knowledge.norm or math.sqrt(observation.d))
    return Observation(replace(features, rows=rows), observation.weights, knowledge)


def _room(observation: Observation, rows: int, few_rows: bool, resources: Resources) -> MemoryPlan:
    """A budget is kept to; without one, V may take a third of the machine's memory, and nothing else is counted."""
    if resources.memory_bytes is not None:
        coarse = resources.products != resources.dtype
        sizes = Sizes.of(observation, rows, few_rows, resources.dtype, coarse, resources.ranks)
        return room_for(sizes, round(-resources.ranks.largest(-resources.memory_bytes)))
    fitting = _rows_that_fit(observation.d, resources.dtype, None, resources.ranks)
    return MemoryPlan(min(rows, fitting) if few_rows else rows, few_rows or rows <= fitting)


def _rows_that_fit(d: int, dtype: torch.dtype, memory_bytes: int | None, ranks: Ranks) -> int:
    """V may take two thirds of each rank's budget (half of the machine's memory, shared, where none is given)."""
    if memory_bytes is None:
        memory_bytes = machine.memory_bytes() // 2 // ranks.beside
    room = memory_bytes * 2 // 3 // (d * dtype.itemsize)
    return ranks.size * round(-ranks.largest(-room))  # shares are equal: the least room counts
