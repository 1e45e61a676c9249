"""The attack on firing patterns: a dense ReLU layer and the head behind it, both before and after training.

Silent units need fewer samples than the layer has dimensions. The head alone needs many weights, and features that
stood still. Here the change of every unit is one observation with a covariance (`belief.py`): what is not known of a
pattern yet costs its equations weight, and no more. So more samples than dimensions can be told apart, up to about
twice as many: the d + 1 numbers of a unit's change have an unknown for each sample on which it fires, half of them all.

Nothing is called recovered. A sharp pattern is evidence, and how often it misleads is not known well enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume import seeds
from exhume.attacks.firing.belief import Belief
from exhume.attacks.firing.layer import FiringLayer, firing_layer, left_by_firing
from exhume.attacks.firing.search import SETTLED, SearchPlace, first_place, next_place, settled
from exhume.attacks.foundation.certificate import unjudged
from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.given import Given, of_the_samples
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Facts, Judgement, Resources
from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.spectrum import spectrum
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.single_layer.method import OnRidgeForm
from exhume.errors import UsageError
from exhume.held_out import HeldOut
from exhume.layer_states import FAINT, LayerStates
from exhume.observation import Observation
from exhume.observing.dense_layers import layers_of, with_layers
from exhume.solving import least_squares

EXCESS = 1.2  # candidates per sample where n is known, or the rank of the change shows it
WITHOUT_A_SPAN = 15  # its place in an audit where silent units and subspaces have no span to search in
PER_DIMENSION = 1.5  # candidates per dimension where neither is: at two, the change of a unit would say nothing
HELD_OUT = 0.1
COPIES = 4  # of a covariance per unit, in float64
MOST_NUMBERS = 200_000_000  # of all covariances


@dataclass(frozen=True, eq=False)
class FiringProblem:
    """A pass of `loss` is a step of the search."""

    layer: FiringLayer
    count: int
    seed: int
    loss: PassCounter = field(default_factory=PassCounter)


@dataclass(frozen=True)
class FiringPatterns(OnRidgeForm[FiringProblem]):
    """`iterations` are rounds of the search at most, each of some thirty steps."""

    iterations: int = option(20, "at most so many rounds.")

    name: ClassVar[str] = "firing-patterns"
    page: ClassVar[str] = "attacks/firing-patterns.md"
    audit_place: ClassVar[int | None] = 35
    coarse_products: ClassVar[bool] = False
    needs: ClassVar[str] = (
        "It needs a two-layer ReLU network whose first layer and head are known before and after training (--initial)."
    )
    composition: ClassVar[Composition] = Composition(
        features="which units fire on a sample, with the uncertainty of that",
        target="the change of the first layer, unit by unit, and that of the head",
        coefficients="error signals by the head at both ends, each with an uncertainty",
        parametrisation="x̃ = (x, 1) up to its scale",
        solver="Gauss-Newton on a likelihood whose variances are fitted, blurred candidates drawn again",
        knowledge="the first layer and the head, before and after training",
        published="here",
    )

    @classmethod
    def view(cls, observation: Observation) -> Observation:
        return super().view(with_layers(observation))

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        seen = cls.view(observation)
        if _layer(seen) is None or _too_large(seen):
            return ()
        why = "The change of each unit, and of the head, weighed by how surely it is known which samples it fires on."
        return (PlannedAttack(cls.name, why, seed),)

    @classmethod
    def place(cls, observation: Observation) -> int | None:
        """Before the other dear ones where the change of the layer has no rank below its columns: more samples than
        dimensions, of which only this attack makes anything."""
        seen = cls.view(observation)
        states = _layer(seen)
        if states is None or _too_large(seen):
            return cls.audit_place
        return cls.audit_place if spectrum(states).sure else WITHOUT_A_SPAN

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        states = _layer(self.view(observation))
        return 0 if states is None else COPIES * 8 * states.h * states.target.shape[1] ** 2

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[FiringProblem]:
        return FiringCase.open(observation, seed, held_out, resources)

    def steps(self, problem: FiringProblem, resume: State | None = None) -> Iterator[Step]:
        """One step per step of Gauss-Newton. A search that was stopped goes on from the beginning of its round."""
        layer, count = problem.layer, problem.count
        place = None if resume is None or not resume.tensors else _restored(resume, layer)
        made = 0 if place is None or resume is None else int(resume.numbers["iteration"])
        state, shown = State({}, {"iteration": 0}), None
        if place is not None:
            state, shown = _state(place, made), settled(place.belief).candidates
            yield Step(made, shown, place.unexplained, state)
        while place is None or (place.rounds < self.iterations and not place.done):
            random = seeds.start_of(problem.seed, 0 if place is None else place.rounds + 1)
            walk = first_place(layer, count, random) if place is None else next_place(layer, count, place, random)
            for now in walk:
                made += 1
                problem.loss.total = float(made)
                if isinstance(now, SearchPlace):
                    place, state, shown = now, _state(now, made), settled(now.belief).candidates
                    yield Step(made, shown, now.unexplained, state, _notes(now.belief))
                else:
                    belief = now.belief
                    yield Step(
                        made, belief.candidates if shown is None else shown, now.unexplained, state, _notes(belief)
                    )


def _layer(observation: Observation) -> LayerStates | None:
    """The layer that reads the inputs, where it and the head behind it are known before and after training."""
    found = layers_of(observation)
    head, features = observation.published_head, observation.features
    if not found or head is None or features.is_network or observation.knowledge.initial != "known":
        return None
    states = found[0]
    ours = states.reads == "inputs" and states.source == "training" and states.leak <= FAINT
    return states if ours and states.h == observation.weights.shape[1] else None


def _too_large(observation: Observation) -> bool:
    """Inside the span of few samples it may still be small: that is silent units' case, and they are exact there."""
    states = _layer(observation)
    return states is not None and states.h * states.target.shape[1] ** 2 > MOST_NUMBERS


def _notes(belief: Belief) -> dict[str, float]:
    return {
        "candidates": len(belief.candidates),
        "settled": int((belief.blurs <= SETTLED).sum()),
        "noise": belief.noise,
    }


_TENSORS = ("candidates", "coefficients", "blur", "spread")
_NUMBERS = ("noise", "head_noise")


def _state(place: SearchPlace, made: int) -> State:
    belief = place.belief
    numbers = {"surprise": place.surprise, "unexplained": place.unexplained, "rounds": place.rounds, "idle": place.idle}
    numbers |= {"iteration": made} | {name: getattr(belief, name) for name in _NUMBERS}
    return State({name: getattr(belief, name) for name in _TENSORS}, numbers)


def _restored(state: State, layer: FiringLayer) -> SearchPlace:
    numbers = state.numbers
    candidates, coefficients, blur, spread = (state.tensors[name].to(layer.halfway) for name in _TENSORS)
    noise, head_noise = (float(numbers[name]) for name in _NUMBERS)
    belief = Belief(candidates, coefficients, blur, spread, noise, head_noise)
    rounds, idle = int(numbers["rounds"]), int(numbers["idle"])
    return SearchPlace(belief, float(numbers["surprise"]), float(numbers["unexplained"]), rounds, idle)


@dataclass(frozen=True, eq=False, repr=False)
class FiringCase:
    """One layer made ready; candidates are multiples of x̃, inside the span of the layer's change where it shows one."""

    observation: Observation
    states: LayerStates
    problem: FiringProblem
    unseen: FiringLayer | None
    places: Int[Tensor, " u"]
    facts: Facts

    @classmethod
    def open(cls, observation: Observation, seed: int, held_out: float, resources: Resources) -> "FiringCase":
        states = _layer(observation)
        if states is None:
            raise UsageError(
                "expected a two-layer ReLU network, its first layer and head before and after training, found "
                f"{observation.features.description} without that; give the weights before training (--initial)"
            )
        drawn = torch.rand(states.h, generator=seeds.generator(seed, "held-out"))
        kept = drawn < (HELD_OUT if held_out > 0 else 0.0)  # a share of none would leave nothing to judge by
        used, places = (~kept).nonzero()[:, 0], kept.nonzero()[:, 0]
        shown = spectrum(states, used)
        layer = firing_layer(observation, states, shown, used, resources.device)
        if layer.h * layer.dimensions**2 > MOST_NUMBERS:
            raise UsageError(
                f"expected units times squared dimensions up to {MOST_NUMBERS:,}, found {layer.h:,} x "
                f"{layer.dimensions:,}^2; take --method silent-units, or module-newton"
            )
        unseen = firing_layer(observation, states, shown, places, resources.device) if len(places) else None
        n = observation.knowledge.samples or (shown.rank if shown.exact else None)
        count = ceil(PER_DIMENSION * layer.dimensions if n is None else EXCESS * n)
        facts: Facts = {
            "layer": states.name,
            "rank": shown.rank if shown.sure else None,
            "gap": shown.gap,
            "searched_with": count,
            "directions_only": not states.bias and observation.knowledge.norm is None,
        }
        return cls(observation, states, FiringProblem(layer, count, seed), unseen, places, facts)

    @property
    def given(self) -> Given:
        given: Given = {"weights": f"{self.states.target.numel() + self.observation.p:,} numbers of two layers"}
        given |= {"features": self.observation.features.description, "initial": "known"}
        given |= {"body": f"layer {self.states.name!r}, whose change was used"}
        return given | of_the_samples(self.observation)

    @property
    def held_out(self) -> HeldOut:
        return HeldOut(f"units of layer {self.states.name!r}", self.places)

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        inputs = self.problem.layer.inputs(candidates)
        norm = self.observation.knowledge.norm
        scaled = inputs if self.states.bias or norm is None else inputs * norm
        return scaled.to(self.observation.weights.dtype)

    def unseen_loss(self, candidates: Float[Tensor, "m c"]) -> float | None:
        return None if self.unseen is None else left_by_firing(self.unseen, candidates)

    def judge(self, candidates: Float[Tensor, "m c"]) -> Judgement:
        layer, unseen = self.problem.layer, self.unseen_loss(candidates)
        features = torch.relu(layer.halfway @ candidates.T)
        coefficients = least_squares(features, layer.head_change)
        certificate = replace(unjudged(len(candidates), len(self.places)), held_out_loss=unseen)
        return Judgement(left_by_firing(layer, candidates), coefficients, certificate)
