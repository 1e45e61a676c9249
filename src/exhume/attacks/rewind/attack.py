"""The attack on a two-layer network whose head is known before and after training, and its first layer only after.

The features moved while the head was trained, and nobody knows from where. Candidates say it: the head's change has
their error signals, and these must have moved the first layer to where it is (`path.py`). So candidates and the way of
the first layer are found together (`fit.py`, `search.py`).

Nothing is called recovered: how far a walk back can mislead is not known well enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume import seeds
from exhume.attacks.foundation.certificate import split_places, unjudged
from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.distinct_outputs import distinct_outputs
from exhume.attacks.foundation.given import Given, of_the_head
from exhume.attacks.foundation.homogeneous import Homogeneous, in_homogeneous_coordinates, tells_norms
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Facts, Judgement, Resources
from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.rewind.fit import Fit, fitted
from exhume.attacks.rewind.path import TrainedLayer, Way
from exhume.attacks.rewind.search import Place, error, first_place, next_place
from exhume.attacks.single_layer.method import OnRidgeForm
from exhume.errors import UsageError
from exhume.features.rows import hold
from exhume.held_out import HeldOut
from exhume.observation import Observation

EQUATIONS_PER_NUMBER = 7  # of the candidates that a search begins with
EXCESS = 2.0  # candidates per sample at first, where n is known
MOST_NUMBERS = 4_000  # of all candidates together: a step factorises a square matrix of that size
FEWEST = 4  # candidates that a search can begin with
COPIES = 3  # of the gradients of all features, and of the matrix of a step
WALKS = 12  # back for units that the search did not see: their start settles in ten


@dataclass(frozen=True, eq=False, repr=False)
class RewindProblem:
    """A pass of `loss` is a step of the search."""

    layer: TrainedLayer
    count: int
    bias: bool
    seed: int
    loss: PassCounter = field(default_factory=PassCounter)


@dataclass(frozen=True)
class Rewind(OnRidgeForm[RewindProblem]):
    """`iterations` are rounds of the search at most, the first of some twenty steps and the others of nine."""

    iterations: int = option(12, "at most so many rounds.")

    name: ClassVar[str] = "rewind"
    page: ClassVar[str] = "attacks/rewind.md"
    audit_place: ClassVar[int | None] = 32
    coarse_products: ClassVar[bool] = False
    needs: ClassVar[str] = (
        "It needs a two-layer ReLU network whose head is known before training (--initial) and whose first layer is "
        "known after it alone."
    )
    composition: ClassVar[Composition] = Composition(
        features="φ(W₁(s)x + b₁(s)), the mean along the way that the candidates imply",
        target="the change of the head",
        coefficients="free, eliminated; they are the error signals that moved the first layer",
        parametrisation="x̃ = (x, 1) up to its scale",
        solver="Levenberg-Marquardt with weights per unit, too many candidates at first, pruned",
        knowledge="the head before and after training, the first layer after it",
        published="here",
    )

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        seen = cls.view(observation)
        if not _has_unknown_start(seen) or _count(seen) < FEWEST:
            return ()
        why = (
            "The first layer before training is not known; what it was follows from candidates, and is found with them."
        )
        return (PlannedAttack(cls.name, why, seed),)

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        numbers = min(MOST_NUMBERS, observation.equations)
        return COPIES * dtype.itemsize * numbers * (numbers + observation.weights.shape[1])

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[RewindProblem]:
        return RewindCase.open(observation, seed, held_out, resources)

    def steps(self, problem: RewindProblem, resume: State | None = None) -> Iterator[Step]:
        """One step per step of the fit. A search that was stopped goes on from the beginning of its round."""
        place = None if resume is None or not resume.tensors else _restored(resume, problem.layer)
        made = 0 if place is None or resume is None else int(resume.numbers["iteration"])
        state = State({}, {"iteration": 0}) if place is None else _state(place, made)
        if place is not None:
            yield _step(made, place.best, state)
        while place is None or (place.rounds + 1 < self.iterations and not place.done):
            random = seeds.start_of(problem.seed, 0 if place is None else place.rounds + 1)
            walk = (
                first_place(problem.layer, problem.count, problem.bias, random)
                if place is None
                else next_place(place, problem.bias, random)
            )
            for now in walk:
                made += 1
                problem.loss.total = float(made)
                if isinstance(now, Place):
                    place, state = now, _state(now, made)
                    yield _step(made, now.best, state)
                else:
                    yield _step(made, now if place is None else place.best, state)


def _step(made: int, fit: Fit, state: State) -> Step:
    return Step(made, fit.candidates, error(fit), state, {"candidates": len(fit.candidates), "typical": fit.typical})


def _state(place: Place, made: int) -> State:
    tensors = {"weights": place.fit.weights, "best_weights": place.best.weights}
    for name, fit in (("", place.fit), ("best_", place.best)):
        tensors[f"{name}candidates"], tensors[f"{name}start"] = fit.candidates, fit.way.start
        tensors[f"{name}moments"] = torch.stack(fit.way.moments)
    return State(tensors, {"iteration": made, "rounds": place.rounds, "idle": place.idle})


def _restored(state: State, layer: TrainedLayer) -> Place:
    def fit(name: str) -> Fit:
        start, moments, candidates, weights = (
            state.tensors[f"{name}{part}"].to(layer.end) for part in ("start", "moments", "candidates", "weights")
        )
        return fitted(candidates, Way(layer, start, tuple(moments)), weights)

    return Place(fit(""), fit("best_"), int(state.numbers["rounds"]), int(state.numbers["idle"]))


def _has_unknown_start(observation: Observation) -> bool:
    if (
        observation.features.is_network
        or observation.knowledge.initial != "known"
        or observation.published_head is None
    ):
        return False
    features = observation.ridge
    known = observation.initial_rows is not None or observation.knowledge.initial_body
    return features.trained and features.activation.homogeneous and not known


def _count(observation: Observation) -> int:
    """Of candidates to begin with."""
    dimensions, n = observation.d + (observation.features.bias is not None), observation.knowledge.samples
    most = min(observation.equations // (EQUATIONS_PER_NUMBER * dimensions), MOST_NUMBERS // dimensions)
    return most if n is None else min(most, round(EXCESS * n))


@dataclass(frozen=True, eq=False, repr=False)
class RewindCase:
    """Units that the search fits, units for the verdict; candidates are x̃ on the unit sphere."""

    observation: Observation
    problem: RewindProblem
    unseen: TrainedLayer | None
    places: Int[Tensor, " u"]
    facts: Facts

    @classmethod
    def open(cls, observation: Observation, seed: int, held_out: float, resources: Resources) -> "RewindCase":
        if not _has_unknown_start(observation):
            raise UsageError(
                "expected a two-layer ReLU network whose head is known before training and whose first layer is not, "
                "found another observation; with both known take --method silent-units"
            )
        count = _count(observation)
        if count < FEWEST:
            raise UsageError(
                f"expected weights for {FEWEST} candidates at least, found {observation.equations:,} equations for "
                f"d = {observation.d:,}, enough for {count}; take --method split-newton"
            )
        split = split_places(observation.weights.shape[1], held_out, seed)
        places = torch.cat([split.steering, split.held_out]).sort().values
        bias = observation.features.bias is not None
        layer = _layer(observation, split.used, resources)
        unseen = _layer(observation, places, resources) if len(places) else None
        facts: Facts = {"searched_with": count, "directions_only": not tells_norms(observation)}
        facts["directions_only"] &= observation.knowledge.norm is None
        return cls(observation, RewindProblem(layer, count, bias, seed), unseen, places, facts)

    @property
    def given(self) -> Given:
        return of_the_head(self.observation)

    @property
    def held_out(self) -> HeldOut:
        return HeldOut("weights of the last layer, by units", self.places)

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        norm = self.observation.knowledge.norm
        inputs = Homogeneous(self.observation.d).lift(candidates) if self.problem.bias else candidates
        return (inputs if self.problem.bias or norm is None else inputs * norm).to(self.observation.weights.dtype)

    def unseen_loss(self, candidates: Float[Tensor, "m c"]) -> float | None:
        """With the error signals of the units that were fitted."""
        if self.unseen is None:
            return None
        seen = _walked(self.problem.layer, candidates)
        way, change = Way.unknown(self.unseen), self.unseen.change
        for _ in range(WALKS):
            way = way.walked_back(candidates, seen.coefficients)
        left = change - way.features(candidates).T @ seen.coefficients
        return float(left.square().sum() / change.square().sum().clamp_min(torch.finfo(change.dtype).tiny))

    def judge(self, candidates: Float[Tensor, "m c"]) -> Judgement:
        fit, change = _walked(self.problem.layer, candidates), self.problem.layer.change
        loss = float(fit.residual.square().sum() / change.square().sum())
        certificate = replace(unjudged(len(candidates), len(self.places)), held_out_loss=self.unseen_loss(candidates))
        return Judgement(loss, fit.coefficients, certificate)


def _layer(observation: Observation, units: Int[Tensor, " u"], resources: Resources) -> TrainedLayer:
    biased = observation.features.bias is not None
    seen = in_homogeneous_coordinates(observation, with_constant=False) if biased else observation
    end = hold(seen.ridge.rows, resources.device, resources.dtype).values
    head, distinct = observation.published_head, distinct_outputs(observation.weights)
    assert head is not None
    before, change = (
        rows.T[units].to(device=resources.device, dtype=resources.dtype).contiguous()
        for rows in (distinct.directions.T @ (head - observation.weights), distinct.rows)
    )
    return TrainedLayer(end[units.to(end.device)], before, change, observation.ridge.activation.leak)


def _walked(layer: TrainedLayer, candidates: Float[Tensor, "m c"]) -> Fit:
    """A fit of these candidates whose way has settled."""
    fit = fitted(candidates.to(layer.end), Way.unknown(layer), torch.ones_like(layer.end[:, 0]))
    for _ in range(WALKS):
        fit = fitted(fit.candidates, fit.way.walked_back(fit.candidates, fit.coefficients), fit.weights)
    return fit
