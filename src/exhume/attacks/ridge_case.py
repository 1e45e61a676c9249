"""Features φ(Vx + b): rows that the attack uses, rows that steer it, rows for the verdict."""

import math
import os
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.admission import check_features
from exhume.attacks.certificate import RowSplit, certify, loss_on, rounding_noise, split_rows
from exhume.attacks.judgement import Judgement, Means
from exhume.attacks.problem import Problem
from exhume.attacks.span import SpanLoss
from exhume.features.rows import HeldRows, hold
from exhume.observation import Observation


@dataclass(frozen=True, eq=False)
class RidgeCase:
    observation: Observation
    split: RowSplit
    problem: Problem

    @classmethod
    def open(cls, observation: Observation, few_rows: bool, seed: int, held_out: float, means: Means) -> "RidgeCase":
        """V is held in memory where it fits; where it does not, a method that can do with `few_rows` gets as many."""
        features = observation.ridge
        check_features(features)
        split = split_rows(features.p, held_out)
        room = _rows_that_fit(observation.d, means.dtype, means.memory_bytes)
        used = min(split.used, room) if few_rows else split.used
        features = features.part(0, used)
        if not isinstance(features.rows, HeldRows) and used <= room:
            features = replace(features, rows=hold(features.rows, means.device, means.dtype))
        loss = SpanLoss(features, observation.weights[:, :used], means.dtype, means.device)
        coarse = loss
        if means.products != means.dtype:
            coarse = loss.with_rows(hold(features.rows, means.device, means.products))

        def steering_loss(candidates: Tensor, coefficients: Tensor | None = None) -> float | None:
            if coefficients is None:
                coefficients = loss.to(candidates.dtype).fit(candidates).coefficients
            return loss_on(observation, split.used, split.steering, candidates, coefficients * loss.scale)

        problem = Problem(
            loss=loss,
            coarse=coarse,
            norm=observation.knowledge.norm or math.sqrt(observation.d),
            samples=observation.knowledge.samples,
            seed=seed,
            steering_loss=steering_loss,
            rounding=rounding_noise(observation.weights),
            dtype=means.dtype,
            device=means.device,
        )
        return cls(observation, split, problem)

    def judge(self, candidates: Float[Tensor, "m d"]) -> Judgement:
        """On all rows and without any help that the method may have used on the way: the published loss."""
        loss, split = self.problem.loss, self.split
        final = loss.to(candidates.dtype).fit(candidates)
        coefficients = final.coefficients * loss.scale
        unseen = loss_on(self.observation, split.used + split.steering, split.held_out, candidates, coefficients)
        return Judgement(final.loss, coefficients, certify(loss, final, unseen, split, self.observation.weights))


def _rows_that_fit(d: int, dtype: torch.dtype, memory_bytes: int | None) -> int:
    """V may take two thirds of the budget (half of the machine's memory where none is given)."""
    if memory_bytes is None:
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return memory_bytes * 2 // 3 // (d * dtype.itemsize)
