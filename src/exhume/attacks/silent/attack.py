"""The silent-units attack: training samples, exact, from two states of one dense layer.

Method and case, for the loop that all attacks share. Candidates of this attack are duals; `lift` makes inputs of them.
What was found is judged by units that were held out from the beginning (`certificate.py`). Where the change has full
rank there are no duals to find, and only units that fired on one sample alone speak (`lone_units.py`).
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.given import Given
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Facts, Judgement, Resources
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.spectrum import Spectrum, spectrum
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.silent.certificate import Witnessed, heard, witnessed
from exhume.attacks.silent.head_start import HeadStart
from exhume.attacks.silent.joint import completed
from exhume.attacks.silent.lone_units import Lone, lone_samples
from exhume.attacks.silent.samples import Samples, samples_of
from exhume.attacks.silent.search import Found, nothing_found, search, with_places
from exhume.attacks.silent.span import Span, open_span, require_layers, silent_bytes
from exhume.attacks.silent.whole_inputs import whole_inputs
from exhume.errors import ExhumeError
from exhume.held_out import HeldOut
from exhume.layer_states import AVERAGES, FAINT, SOURCES, LayerStates
from exhume.observation import Observation
from exhume.observing.dense_layers import layers_of, with_layers
from exhume.picture_layouts import layout_of
from exhume.reconstruction import Certificate, Outcome, Reconstruction

HELD_OUT = 0.1
LONE_CONFIDENCE = 0.3  # units that fired on the same samples in the same way have parallel rows too


@dataclass(frozen=True, eq=False)
class SilentProblem:
    """A pass of `loss` is a round of the search."""

    span: Span | None
    lone: Lone | None
    seed: int
    head_start: Callable[[], HeadStart | None]
    loss: PassCounter = field(default_factory=PassCounter)


@dataclass(frozen=True)
class SilentUnits(Method[SilentProblem]):
    """`iterations` are rounds of the search at most."""

    iterations: int = option(400, "at most so many rounds.")

    name: ClassVar[str] = "silent-units"
    page: ClassVar[str] = "silent-units.md"
    through_features: ClassVar[bool] = False
    auto_place: ClassVar[int | None] = 10
    audit_place: ClassVar[int | None] = 10
    needs: ClassVar[str] = (
        "It needs two states of a ReLU layer that reads the inputs, frozen features, or few large patches: the weights "
        "before training or an earlier checkpoint (--initial), or a checkpoint with the optimiser's state or a moving "
        "average."
    )
    composition: ClassVar[Composition] = Composition(
        features="what the units of a dense layer fire on",
        target="the change of that layer",
        coefficients="zero wherever a unit is silent",
        parametrisation="x = U z, U the span of the layer's change",
        solver="edges of pictures or many starts, reweighted least squares, annealing",
        knowledge="one dense layer, before and after training",
        published="here",
    )

    @classmethod
    def first_choice(cls, outline: Outline) -> bool:
        """Layers that were observed, or that can be built again and read the inputs: pieces of them are not scored."""
        return bool(outline.layers) and (outline.layers[0] == "inputs" or not outline.rebuilt)

    @classmethod
    def broken_by(cls, observation: Observation) -> frozenset[str]:
        """Every form of a sample is an input of its own to it, and what weight decay left of the start is found. An
        average of gradients is one whatever the optimiser did with them; a change that Adam made is none."""
        of_gradients = {states.source for states in layers_of(observation)} <= AVERAGES
        return frozenset({"dp-sgd"} if of_gradients else {"dp-sgd", "adam"})

    @classmethod
    def view(cls, observation: Observation) -> Observation:
        return with_layers(observation)

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        """One attack per state of a layer, in the order in which they are known: the strong ones first."""
        return tuple(
            PlannedAttack(cls.name, f"{_capital(states.describe())}. {_kept_apart(states)}", seed, layer=place)
            for place, states in enumerate(layers_of(observation))
        )

    @classmethod
    def why_not(cls, observation: Observation, no_silence: str | None) -> str:
        if no_silence is None:
            return cls.needs
        return (
            f"It needs a ReLU layer that reads the inputs, frozen features, or few large patches. Here, {no_silence}."
        )

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        return silent_bytes(observation)

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[SilentProblem]:
        return SilentCase.open(observation, seed, held_out, resources)

    def completed(self, found: Reconstruction, observation: Observation) -> Reconstruction:
        return whole_inputs(found, observation)

    def steps(self, problem: SilentProblem, resume: State | None = None) -> Iterator[Step]:
        span = problem.span
        if span is None:
            assert problem.lone is not None
            yield Step(0, problem.lone.inputs, 0.0, State({}, {"iteration": 0}))
            return
        found = nothing_found(span) if resume is None else _restored(resume, span)
        problem.loss.total = float(found.round)
        yield _step(span, found)
        found = yield from self._searched(problem, span, found)
        head = problem.head_start() if len(found.duals) < span.r and span.leak <= FAINT else None
        if head is not None:
            points = found.duals[:0]
            for better in head.points(span):
                points = better
                yield _step(span, found)
            found = yield from self._searched(problem, span, with_places(span, found, points))
        if span.leak <= FAINT:
            yield _step(span, found.followed_by(completed(span, found.duals), sound=True))

    def _searched(self, problem: SilentProblem, span: Span, found: Found) -> Generator[Step, None, Found]:
        for latest in search(span, problem.seed, found):
            found = latest
            problem.loss.total = float(found.round)
            yield _step(span, found)
            if found.round >= self.iterations:
                break
        return found

    def finish(self, problem: SilentProblem, candidates: Float[Tensor, "m r"]) -> Float[Tensor, "few r"]:
        if problem.span is None or problem.span.leak > FAINT:
            return candidates
        return completed(problem.span, candidates)


def _kept_apart(states: LayerStates) -> str:
    if states.leak <= FAINT:
        return "Units that are silent on a sample tell single samples apart."
    return "None of its units is silent, so only pictures can be told apart, by their edges."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _step(span: Span, found: Found) -> Step:
    numbers = {"iteration": found.round, "idle": found.idle, "most": found.most, "sound": float(found.sound)}
    missing = 1 - len(found.duals) / span.r
    state = State({"duals": found.duals, "likely": found.likely}, numbers)
    return Step(found.round, found.candidates(), missing, state, {"found": len(found.duals)})


def _restored(state: State, span: Span) -> Found:
    numbers = state.numbers
    duals = state.tensors["duals"].to(span.rows)
    likely = state.tensors.get("likely", duals[:0]).to(span.rows)
    done, idle, most = (int(numbers[name]) for name in ("iteration", "idle", "most"))
    return Found(duals, likely, done, idle, most, bool(numbers["sound"]))


def _best_points(span: Span, samples: Samples, witness: Witnessed) -> Float[Tensor, "m r"]:
    """What is called recovered stands where certain duals alone put it; a whole set tells the rest best together."""
    if len(samples.duals) < span.r:
        return samples.points
    sure = torch.tensor(witness.confidence, device=samples.points.device) >= 0.5
    return torch.where(sure[:, None], samples.points, span.facing(torch.linalg.pinv(samples.duals).T))


def _first_look(span: Span, duals: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    """Places of duals that nobody has polished."""
    return span.facing(torch.linalg.pinv(duals).T) if len(duals) else duals


@dataclass(eq=False, repr=False)
class SilentCase:
    """One layer made ready. Keeps the places of the duals that were judged, which `lift` is asked for next."""

    states: LayerStates
    shown: Spectrum
    problem: SilentProblem
    unseen: Span | None
    norm: float | None
    dtype: torch.dtype
    facts: Facts
    _judged: tuple[Tensor, Tensor] | None = None

    @classmethod
    def open(cls, observation: Observation, seed: int, held_out: float, resources: Resources) -> "SilentCase":
        states = require_layers(observation)[0]
        # a share of none would leave nothing to judge by; any other is the caller's wish
        share = HELD_OUT if held_out > 0 else 0.0
        drawn = torch.rand(states.h, generator=seeds.generator(seed, "held-out"))
        used = drawn >= share
        shown = spectrum(states, used.nonzero()[:, 0])
        if shown.clear and shown.rank > int(used.sum()) // 2:
            raise ExhumeError(
                f"expected at least twice as many units as samples in {states.describe()}, found {states.h} units; "
                f"{shown.describe()}"
            )
        facts: Facts = {
            "layer": states.name,
            "reads": states.reads,
            "target": states.source,
            "rank": shown.rank if shown.sure else None,
            "gap": shown.gap,
            "decay": shown.scale,
            "noise_explained": shown.explained,
            "directions_only": not states.bias and observation.knowledge.norm is None,
            "subspace": f"{states.describe()}; {shown.describe()}",
            "subspace_rank": shown.rank if shown.sure else None,
        }
        span, unseen, lone = None, None, None
        if shown.clear:
            span, unseen = (part.on(resources.device) for part in open_span(states, shown, used))
            layout = layout_of(span.pixels)
            facts["layout"] = None if layout is None else [layout.channels, layout.height, layout.width]
        else:
            lone = lone_samples(states.target, shown.noise, states.bias)
        units = used.nonzero()[:, 0]
        head_start = partial(HeadStart.of, observation, states, units, seed, held_out, resources)
        problem = SilentProblem(span, lone, seed, head_start)
        return cls(states, shown, problem, unseen, observation.knowledge.norm, resources.dtype, facts)

    def lift(self, candidates: Float[Tensor, "m r"]) -> Float[Tensor, "m d"]:
        """The inputs of duals: exact for those that were judged, a first look at others."""
        span = self.problem.span
        if span is None:
            return candidates.to(self.dtype)
        if self._judged is not None and self._judged[0] is candidates:
            points = self._judged[1]
        else:
            points = _first_look(span, candidates)
        inputs = span.inputs(points)
        if not span.bias and self.norm is not None:
            inputs = inputs * self.norm
        return inputs.to(self.dtype)

    @property
    def held_out(self) -> HeldOut:
        what = f"units of layer {self.states.name!r}"
        if self.unseen is None:
            return HeldOut(what, torch.zeros(0, dtype=torch.int64))
        looked_at = "which samples they confirm; the numbers of these were then computed without the others"
        return HeldOut(what, self.unseen.units.cpu(), looked_at)

    def unseen_loss(self, candidates: Float[Tensor, "m r"]) -> float | None:
        """What units that should be silent have heard, at a first look."""
        span = self.problem.span
        if span is None or self.unseen is None or not len(candidates) or span.leak > FAINT:
            return None
        return heard(self.unseen, candidates, _first_look(span, candidates))

    @property
    def given(self) -> Given:
        states, facts = self.states, self.facts
        given: Given = {"weights": f"{states.target.numel():,} numbers of layer {states.name!r}"}
        if states.reads != "inputs":
            given["features"] = f"the layer reads {states.reads}"
        if states.source == "training":
            given["body"] = f"layer {states.name!r}, whose change was used"
        elif states.source != "stationary":
            given["layer"] = SOURCES[states.source]
        if not states.bias and self.norm is not None:
            given["norm"] = f"{self.norm:.6g}"
        if facts.get("layout"):
            given["prior"] = "pictures have few edges"
        return given

    def judge(self, candidates: Float[Tensor, "m r"]) -> Judgement:
        if self.problem.span is None:
            return self._judge_lone(candidates)
        assert self.unseen is not None
        span = self.problem.span
        samples = samples_of(span, candidates)
        witness = witnessed(span, self.unseen, samples, self.shown.explained)
        self._judged = (candidates, _best_points(span, samples, witness))
        sure = sum(value >= 0.5 for value in witness.confidence)
        outcome = Outcome.RECOVERED if sure == span.r else Outcome.PARTIAL if sure else Outcome.NOT_CONVERGED
        loss_on_units = witness.heard if len(candidates) and span.leak <= FAINT else None
        certificate = Certificate(outcome, loss_on_units, self.unseen.h, witness.confidence)
        coefficients = span.columns(samples.duals).norm(dim=1, keepdim=True)
        loss = 1 - int(samples.certain.sum()) / span.r
        return Judgement(loss, coefficients, certificate, self._facts(samples, witness))

    def _facts(self, samples: Samples, witness: Witnessed) -> Facts:
        sure = [value >= 0.5 for value in witness.confidence]
        chances = [float(chance) for chance, ok in zip(witness.chance, sure, strict=True) if ok]
        spreads = [float(spread) for spread, ok in zip(samples.spread, sure, strict=True) if ok]
        return {
            "chance": max(chances) if chances else None,
            "expected_error": max(spreads) if spreads else None,
            "silent_witnesses": int(witness.silent.min()) if len(witness.silent) else 0,
            "pictures": self._pictures(sure),
        }

    def _pictures(self, sure: list[bool]) -> int:
        """How many pictures were told apart by their edges that no unit confirms."""
        span = self.problem.span
        assert span is not None
        return sure.count(False) if len(sure) == span.r and self.facts.get("layout") else 0

    def _judge_lone(self, candidates: Float[Tensor, "m d"]) -> Judgement:
        confidence = (LONE_CONFIDENCE,) * len(candidates)
        outcome = Outcome.NOT_CONVERGED  # nothing confirms them
        coefficients = torch.ones(len(candidates), 1, dtype=torch.float64)
        return Judgement(1.0, coefficients, Certificate(outcome, None, 0, confidence), {})
