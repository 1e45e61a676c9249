"""Penultimate features of a network: whole groups of them (channels) are kept for steering and for the verdict."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.foundation.certificate import (
    CONFIDENT_BELOW,
    TRUSTED_ERROR,
    PlaceSplit,
    Unexplained,
    split_places,
    stand_alone,
    unjudged,
    verdict,
)
from exhume.attacks.foundation.given import Given, of_the_head, with_smooth_pictures
from exhume.attacks.foundation.judgement import Case, Facts, Judgement, Resources
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.outline import NETWORK
from exhume.attacks.foundation.projection import Projection, removal_costs
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.modules.affine_span import AffineSpan
from exhume.attacks.modules.linearised import expected_squares, split_apart
from exhume.attacks.modules.memory_plan import NetworkSizes, network_room
from exhume.attacks.modules.problem import ModuleProblem
from exhume.attacks.modules.span import GeneralSpanLoss
from exhume.attacks.single_layer.structure import SHOWS
from exhume.features.module import ModuleFeatures
from exhume.held_out import HeldOut
from exhume.observation import Observation
from exhume.reconstruction import Certificate, Outcome

UNCONFIRMED = 0.49  # the most confidence of what nothing confirms


@dataclass(frozen=True, eq=False)
class ModuleCase:
    observation: Observation
    features: ModuleFeatures
    split: PlaceSplit
    problem: ModuleProblem
    given: Given
    what: str = "weights of the last layer"
    looked_at: str = ""
    facts: Facts = field(default_factory=dict)

    @classmethod
    def open(cls, observation: Observation, seed: int, held_out: float, resources: Resources) -> "ModuleCase":
        features = observation.network
        at_most = None
        if resources.memory_bytes is not None:
            room = network_room(NetworkSizes.of(observation, resources.dtype), resources.memory_bytes, features.chunk)
            features, at_most = replace(features, chunk=room.chunk), room.candidates
        split = split_coordinates(features, held_out, seed)
        used = split.used
        loss = GeneralSpanLoss(features.part(used), observation.weights[:, used], resources.dtype, resources.device)

        def steering_loss(candidates: Tensor, coefficients: Tensor | None = None) -> float | None:
            if coefficients is None:
                coefficients = loss.to(candidates.dtype).fit(candidates).coefficients
            return _loss_on(observation, features, split.steering, candidates, coefficients * loss.scale)

        span = AffineSpan.of(observation, loss.weights) if observation.knowledge.norm is None else None
        problem = ModuleProblem(
            loss=loss,
            norm=observation.knowledge.norm,
            samples=observation.knowledge.samples or (None if span is None else span.rank),
            seed=seed,
            steering_loss=steering_loss,
            dtype=resources.dtype,
            device=resources.device,
            image_shape=observation.image_shape,
            at_most=at_most,
            span=span,
        )
        given = with_smooth_pictures(of_the_head(observation), observation.image_shape)
        facts: Facts = {}
        if span is not None and span.rank is not None:
            given["body"] = "the first layer, whose change was used"
            facts = {"subspace": span.source, "subspace_rank": span.rank}
        if features.kin is not None:
            given["prior"] = f"{len(features.kin):,} records of the same kind"
            given["initial"] = "an older version"
        return cls(observation, features, split, problem, given, facts=facts)

    def lift(self, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """Candidates of this case are the samples themselves."""
        return candidates

    @property
    def held_out(self) -> HeldOut:
        return HeldOut(self.what, self.split.held_out, self.looked_at)

    def unseen_loss(self, candidates: Float[Tensor, "m d"]) -> float | None:
        loss = self.problem.loss.to(candidates.dtype)
        coefficients = loss.fit(candidates).coefficients * loss.scale
        return _loss_on(self.observation, self.features, self.split.held_out, candidates, coefficients)

    def judge(self, candidates: Float[Tensor, "m d"]) -> Judgement:
        loss = self.problem.loss.to(candidates.dtype)
        final = loss.fit(candidates)
        coefficients = final.coefficients * loss.scale
        unseen = _loss_on(self.observation, self.features, self.split.held_out, candidates, coefficients)
        if unseen is None:
            return Judgement(final.loss, coefficients, unjudged(len(candidates)))
        rows, weights = len(self.split.held_out), self.observation.weights
        free_norms = self.problem.norm is None and not self.features.norm_blind

        def left_by(fit: Projection, unseen: float) -> Unexplained:
            return Unexplained(fit.loss, unseen, rows * loss.outputs, fit.candidates.numel() / loss.equations)

        def again(kept: Int[Tensor, " few"]) -> tuple[Projection, Float[Tensor, " few"]]:
            here = loss.fit(candidates[kept])
            scaled = here.coefficients * loss.scale
            missed = _loss_on(self.observation, self.features, self.split.held_out, here.candidates, scaled)
            return here, expected_squares(loss, here, left_by(here, missed or 0.0).noise, free_norms)

        left = left_by(final, unseen)
        squares = stand_alone(expected_squares(loss, final, left.noise, free_norms), final, loss, again)
        doubtful: dict[str, tuple[int, ...]] = {}
        apart = split_apart(loss, final, free_norms) if self.observation.knowledge.samples != len(candidates) else None
        if apart is not None:
            hidden = SHOWS * left.noise * len(final.residual) / loss.outputs
            squares, blends = squares + apart.swayed(hidden), apart.costs <= hidden
            doubtful["blend"] = tuple((blends & (squares <= TRUSTED_ERROR**2)).nonzero()[:, 0].tolist())
            squares = squares.where(~blends, torch.inf)
        certificate = verdict(squares, removal_costs(final, loss), left, rows, weights)
        if unseen <= CONFIDENT_BELOW:
            certificate = replace(certificate, doubtful={name: those for name, those in doubtful.items() if those})
        return Judgement(final.loss, coefficients, self._as_far_as_drift_lets(certificate))

    def _as_far_as_drift_lets(self, certificate: Certificate) -> Certificate:
        """Features that moved in training shift candidates alike on all weights, so that held-out ones do not show it:
        of 13 samples of unknown norms that they confirmed in a network of three layers, 5 were off by 0.1 to 0.3."""
        knowledge = self.observation.knowledge
        still = knowledge.initial == "known" and knowledge.initial_body is False
        if knowledge.norm is not None or still or certificate.outcome not in (Outcome.RECOVERED, Outcome.PARTIAL):
            return certificate
        confidence = tuple(min(value, UNCONFIRMED) for value in certificate.confidence)
        return replace(certificate, outcome=Outcome.NOT_CONVERGED, confidence=confidence)


def split_coordinates(features: ModuleFeatures, fraction: float, seed: int) -> PlaceSplit:
    """Whole groups of them."""
    groups = torch.arange(features.p) if features.groups is None else features.groups
    names = torch.unique(groups)
    split = split_places(len(names), fraction, seed)
    chosen = (torch.isin(groups, names[part]) for part in (split.used, split.steering, split.held_out))
    return PlaceSplit(*(places.nonzero()[:, 0] for places in chosen))


def _loss_on(
    observation: Observation,
    features: ModuleFeatures,
    coordinates: Int[Tensor, " q"],
    candidates: Float[Tensor, "m d"],
    coefficients: Float[Tensor, "m k"],
) -> float | None:
    weights = observation.weights[:, coordinates]
    if not len(coordinates) or not torch.any(weights):
        return None
    loss = GeneralSpanLoss(features.part(coordinates), weights, candidates.dtype, candidates.device)
    return loss.predict_loss(candidates, coefficients)


class ModuleMethod(Method[ModuleProblem]):
    needs: ClassVar[str] = "It is for networks whose features have another form."
    attacked: ClassVar[str | None] = NETWORK

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        return NetworkSizes.of(observation, dtype).least_bytes

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[ModuleProblem]:
        return ModuleCase.open(observation, seed, held_out, resources)
