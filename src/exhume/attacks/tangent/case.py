"""Every weight of a two-layer network as an equation: what the attacks on all layers are given, and their verdict.

Rows of the first layer are held out as a whole: a row is d equations that share its error signals. A unit that
switched during training for some sample leaves a large residual in its row and none in the others: the loss on held-out
rows may be that of a few of them, which is no evidence that candidates are spurious.

A first layer that grew from next to nothing (kkt) has units that point nearly the same way. Held-out rows are then near
copies of rows that were fitted and would certify themselves: wrong candidates were seen with a confidence above 1/2. So
no candidate of that attack is trusted; which ones are right shows in what independent runs agree on (`agreement.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume import seeds
from exhume.attacks.foundation.certificate import (
    PlaceSplit,
    Unexplained,
    split_places,
    unjudged,
    verdict,
)
from exhume.attacks.foundation.given import INITIAL, Given, of_the_samples, with_smooth_pictures
from exhume.attacks.foundation.judgement import Facts, Judgement
from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.modules.coordinates import Coordinates, SpanCoordinates
from exhume.attacks.tangent.linearised import expected_squares
from exhume.attacks.tangent.span import TangentSpanLoss
from exhume.attacks.tangent.view import TangentView, WholeNetwork, look, whole_network
from exhume.held_out import HeldOut
from exhume.observation import Observation
from exhume.reconstruction import Outcome


@dataclass(frozen=True, eq=False)
class TangentProblem:
    """The loss on the weights that the attack may use, in the coordinates of its candidates.

    `samples`: as told, or the rank that the first layer shows; None where neither is there. `steering_loss` is that of
    rows of the first layer that are neither fitted nor those of the verdict.
    """

    loss: TangentSpanLoss
    coordinates: Coordinates | SpanCoordinates
    samples: int | None
    seed: int
    steering_loss: Callable[[Tensor], float | None]

    def generator(self, stream: int) -> torch.Generator:
        return seeds.start_of(self.seed, stream)


@dataclass(frozen=True, eq=False)
class TangentCase:
    observation: Observation
    problem: TangentProblem
    unseen: TangentSpanLoss | None
    split: PlaceSplit
    subspace: Subspace | None
    given: Given
    condensed: bool = False
    """Whether rows of the first layer may be copies of each other, so that held-out ones prove nothing."""
    facts: Facts = field(default_factory=dict)

    @classmethod
    def open(cls, observation: Observation, view: TangentView, seed: int, held_out: float) -> "TangentCase":
        whole = whole_network(observation)
        split = split_places(len(whole.first), held_out, seed)
        norm = observation.knowledge.norm or observation.d**0.5
        given = None if observation.subspace is None else Subspace(observation.subspace)
        seen = look(whole, view, split.used, norm, given)
        used = TangentSpanLoss(seen.network, seen.targets, split.used, view.rule)
        steering = _on_rows(used, split.steering)

        def steering_loss(candidates: Tensor) -> float | None:
            return (
                None if steering is None else steering.predict_loss(candidates, used.of_outputs(used.fit(candidates)))
            )

        problem = TangentProblem(
            loss=used,
            coordinates=_coordinates(observation, view, seen.subspace, norm, whole.first),
            samples=observation.knowledge.samples or seen.rank,
            seed=seed,
            steering_loss=steering_loss,
        )
        facts = {
            "subspace": seen.note,
            "subspace_rank": None if seen.subspace is None else seen.subspace.r,
            "layers_read": ["first", "head"],
        }
        unseen, condensed = _on_rows(used, split.held_out), view.weights_themselves
        used_of = _given(observation, view, whole)
        return cls(observation, problem, unseen, split, seen.subspace, used_of, condensed, facts)

    @property
    def held_out(self) -> HeldOut:
        if self.condensed:
            return HeldOut("rows of the first layer", self.split.held_out)
        looked_at = "halfway through training the rows make features of the head"
        return HeldOut("changes of rows of the first layer", self.split.held_out, looked_at)

    def unseen_loss(self, candidates: Float[Tensor, "m c"]) -> float | None:
        loss = self.problem.loss
        if self.unseen is None:
            return None
        return max(0.0, self.unseen.predict_loss(candidates, loss.of_outputs(loss.fit(candidates))))

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        found = candidates if self.subspace is None else self.subspace.lift(candidates)
        return found.to(self.observation.weights.dtype)

    def judge(self, candidates: Float[Tensor, "m c"]) -> Judgement:
        loss = self.problem.loss
        final = loss.fit(candidates)
        coefficients = loss.of_outputs(final)
        if self.unseen is None:
            return Judgement(final.loss, coefficients, unjudged(len(candidates)))
        unseen = self.unseen.predict_loss(candidates, coefficients)
        m, c = candidates.shape
        taken = m * (c - 1 + final.coefficients.shape[1]) / loss.equations
        left = Unexplained(max(final.loss, 0.0), max(unseen, 0.0), self.unseen.equations, taken)
        rows = len(self.split.held_out)
        unknown = torch.full((m,), torch.inf, dtype=torch.float64)
        squares = unknown if self.condensed else expected_squares(loss, final, left.noise)
        certificate = verdict(squares, loss.removal_costs(final), left, rows, self.observation.weights)
        if self.condensed:
            certificate = replace(certificate, outcome=Outcome.NOT_CONVERGED)
        if certificate.outcome is Outcome.SPURIOUS and self._by_few_rows(candidates, coefficients, 4 * final.loss):
            certificate = replace(certificate, outcome=Outcome.NOT_CONVERGED)
        return Judgement(final.loss, coefficients, certificate)

    def _by_few_rows(self, candidates: Float[Tensor, "m c"], coefficients: Float[Tensor, "m k"], bound: float) -> bool:
        """Whether the unseen loss, less two standard errors between rows, is below the bound."""
        loss, rows = self.unseen, self.split.held_out
        assert loss is not None
        assert loss.targets[0] is not None
        errors = loss.network.gradients(candidates).combined(coefficients, rows)
        left = (loss.targets[0][rows] - errors.T @ candidates).square().sum(dim=1) / loss.energy
        spread = float(left.std()) * len(left) ** 0.5 if len(left) > 1 else torch.inf
        return float(left.sum()) - 2 * spread < bound


def _given(observation: Observation, view: TangentView, whole: WholeNetwork) -> Given:
    numbers = whole.first.numel() + whole.head.numel()
    given: Given = {"weights": f"{numbers:,} numbers of both layers", "features": observation.features.description}
    if not view.weights_themselves:
        given |= {"initial": INITIAL[observation.knowledge.initial], "body": "the first layer, whose change was used"}
    if observation.subspace is not None:
        given["subspace"] = f"{observation.subspace.shape[1]} of {observation.d} dimensions"
    shape = observation.image_shape if view.smoothness else None
    return with_smooth_pictures(given | of_the_samples(observation), shape)


def _on_rows(used: TangentSpanLoss, rows: Int[Tensor, " u"]) -> TangentSpanLoss | None:
    """The loss on other rows of the first layer, and on nothing else."""
    first = used.targets[0]
    if first is None or not len(rows) or not torch.any(first[rows]):
        return None
    others = (None,) * (len(used.targets) - 1)
    return TangentSpanLoss(used.network, (first, *others), rows, counter=used.counter)


def _coordinates(
    observation: Observation, view: TangentView, subspace: Subspace | None, norm: float, like: Tensor
) -> Coordinates | SpanCoordinates:
    shape = observation.image_shape if view.smoothness else None
    if subspace is None:
        return Coordinates.plain(norm) if shape is None else Coordinates.smooth(norm, shape, view.smoothness, like)
    if shape is None:
        return SpanCoordinates.plain(norm, subspace.r, like)
    return SpanCoordinates.smooth(norm, subspace, shape, view.smoothness)
