"""The attack on what the dense layers behind convolutions read: pictures, where the convolutions were trained too.

It needs the whole network before and after training and the shape of the pictures, and not the recipe. `spans.py` has
the loss, `search.py` the search. Nothing confirms what it finds: pictures that explain the layers are many, and its
certificate stays inconclusive.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume import seeds
from exhume.attacks.dense_spans.search import DescentStart, SmoothPictures, agreed, one_start
from exhume.attacks.dense_spans.spans import DenseSpans
from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.given import Given, of_the_samples
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.judgement import Case, Facts, Judgement, Resources
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.outline import NETWORK, Outline
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.replay.attack import with_ends
from exhume.errors import UsageError
from exhume.held_out import HeldOut
from exhume.observation import Observation
from exhume.reconstruction import Certificate, Outcome

UNCONFIRMED = 0.3  # the confidence of a picture that all starts agree on: no weight that was not fitted confirms it
FAINT = 0.03  # singular values below this share of the largest are drift: of 10 digits in LeNet, 9 to 11 were above
SPARE = 2  # candidates more than the directions that stand out: of LeNet's 10 samples, 9 did
COPIES = 64  # of a network, and of what it keeps of its candidates


@dataclass(frozen=True, eq=False)
class DenseProblem:
    loss: DenseSpans
    pictures: SmoothPictures
    count: int
    samples: int | None
    seed: int

    def generator(self, start: int) -> torch.Generator:
        return torch.Generator().manual_seed(seeds.derive(seeds.derive(self.seed, "start") + start, "start"))


@dataclass(frozen=True)
class DenseSpan(Method[DenseProblem]):
    """`iterations` are starts, of `start_iterations` of L-BFGS each."""

    iterations: int = option(8, "at most so many starts.")
    start_iterations: int = 100

    name: ClassVar[str] = "dense-spans"
    page: ClassVar[str] = "dense-spans.md"
    attacked: ClassVar[str | None] = NETWORK
    audit_place: ClassVar[int | None] = 50
    needs: ClassVar[str] = (
        "It needs a network with dense layers behind convolutions, before and after training (--initial), and the "
        "shape of its pictures."
    )
    composition: ClassVar[Composition] = Composition(
        features="what dense layers behind convolutions read, halfway, scaled to length 1",
        target="the change of these layers",
        coefficients="free, eliminated",
        parametrisation="smooth pictures of one brightness",
        solver="L-BFGS, the mean of what several starts agree on",
        knowledge="the network before and after training",
        published="here",
    )

    def __post_init__(self) -> None:
        if min(self.iterations, self.start_iterations) < 1:
            raise UsageError(f"expected at least 1 iteration, found {min(self.iterations, self.start_iterations)}")

    @classmethod
    def refusal(cls, outline: Outline) -> str | None:
        refusal = super().refusal(outline)
        if refusal is None and outline.image_shape is None:
            return f"expected pictures for --method {cls.name}, found no image shape; give it, or leave --method out"
        return refusal

    @classmethod
    def view(cls, observation: Observation) -> Observation:
        return with_ends(observation)

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        if cls.refusal(Outline.of(observation)) is not None or not _spans(with_ends(observation)):
            return ()
        return (PlannedAttack(cls.name, "Dense layers changed that read what convolutions make of pictures.", seed),)

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        ends = observation.ends
        return 0 if ends is None else COPIES * len(ends.end) * dtype.itemsize

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[DenseProblem]:
        return DenseCase.open(observation, seed, held_out, resources)

    def steps(self, problem: DenseProblem, resume: State | None = None) -> Iterator[Step]:
        """One step per start. The first finds the brightness, from which the others begin. Those candidates come first,
        and stay where n is given, that most starts agree on."""
        shape = problem.pictures.shape
        like = problem.pictures.amplitude
        starts = [] if resume is None else _restored(resume, like)
        if not starts:
            nothing = like.new_zeros(0, math.prod(shape))
            yield Step(0, nothing, 1.0, _state(problem, starts))
        else:
            step = _step(problem, starts)
            if resume is not None:
                problem.loss.counter.total = resume.numbers["passes"]
            yield step
        while len(starts) < self.iterations:
            brightness = min(starts, key=lambda one: one.loss).brightness if starts else 0.0
            stream = problem.generator(len(starts))
            starts.append(
                one_start(problem.loss, problem.pictures, problem.count, self.start_iterations, brightness, stream)
            )
            yield _step(problem, starts)


def _step(problem: DenseProblem, starts: list[DescentStart]) -> Step:
    losses = torch.tensor([one.loss for one in starts], dtype=torch.float64)
    mean, shown = agreed(torch.stack([one.pictures for one in starts]), losses)
    mean = mean[shown.argsort(descending=True, stable=True)][: problem.samples]
    with torch.no_grad():
        left = float(problem.loss.shares(mean)[problem.loss.first])
    state = _state(problem, starts)
    return Step(len(starts), mean, left, state, {"least": min(one.loss for one in starts)})


def _state(problem: DenseProblem, starts: list[DescentStart]) -> State:
    like, count = problem.pictures.amplitude, problem.count
    pictures = torch.stack([one.pictures for one in starts]) if starts else like.new_zeros(0, count, 0)
    numbers = torch.tensor([[one.loss, one.brightness] for one in starts], dtype=torch.float64).reshape(-1, 2)
    tensors = {"pictures": pictures, "losses": numbers[:, 0].contiguous(), "brightness": numbers[:, 1].contiguous()}
    return State(tensors, {"iteration": len(starts), "passes": problem.loss.passes})


def _restored(state: State, like: Tensor) -> list[DescentStart]:
    pairs = zip(state.tensors["losses"].tolist(), state.tensors["brightness"].tolist(), strict=True)
    return [
        DescentStart(pictures.to(like), loss, brightness)
        for pictures, (loss, brightness) in zip(state.tensors["pictures"], pairs, strict=True)
    ]


def _spans(observation: Observation) -> DenseSpans | None:
    """None where there is nothing to attack."""
    ends, shape = observation.ends, observation.network.networks
    if ends is None or not shape:
        return None
    found = DenseSpans.of(ends, shape[-1].input_shape, torch.zeros(1))
    return found if found.changes else None


@dataclass(frozen=True, eq=False, repr=False)
class DenseCase:
    """Units of the first dense layer are held out. `used` are the others."""

    observation: Observation
    problem: DenseProblem
    whole: DenseSpans
    unseen: Int[Tensor, " v"]
    facts: Facts

    @classmethod
    def open(cls, observation: Observation, seed: int, held_out: float, resources: Resources) -> "DenseCase":
        found, shape = _spans(observation), observation.image_shape
        if found is None or observation.ends is None or shape is None:
            raise UsageError(
                f"expected dense layers behind convolutions that both changed for --method {DenseSpan.name}, found "
                "none; observe the network with initial="
            )
        like = torch.zeros(1, dtype=resources.dtype, device=resources.device)
        whole = DenseSpans.of(observation.ends, found.input_shape, like)
        units = len(whole.changes[whole.first])
        unseen = torch.rand(units, generator=seeds.generator(seed, "held-out")) < held_out
        loss = whole.on_units((~unseen).nonzero()[:, 0].to(like.device))
        samples = observation.knowledge.samples
        values = torch.linalg.svdvals(loss.changes[loss.first].double())
        rank = max(1, int((values > FAINT * values[0]).sum()))
        facts: Facts = {"layers_read": list(whole.changes), "directions": rank, "told": samples is not None}
        problem = DenseProblem(loss, SmoothPictures.of(shape, like), (samples or rank) + SPARE, samples, seed)
        return cls(observation, problem, whole, unseen.nonzero()[:, 0], facts)

    @property
    def given(self) -> Given:
        numbers = sum(change.numel() for change in self.whole.changes.values())
        given: Given = {"weights": f"{numbers:,} numbers of {len(self.whole.changes)} dense layers"}
        given |= {"initial": "known", "body": "all layers before them, taken halfway", "shape": "pictures are smooth"}
        return given | of_the_samples(self.observation)

    @property
    def held_out(self) -> HeldOut:
        looked_at = "layers behind this one read it halfway, these units as well"
        return HeldOut(f"units of layer {self.whole.first!r}", self.unseen, looked_at)

    def lift(self, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        return candidates

    @torch.no_grad()
    def unseen_loss(self, candidates: Float[Tensor, "m d"]) -> float | None:
        if not len(self.unseen) or not len(candidates):
            return None
        spans = self.whole.on_units(self.unseen.to(candidates.device), alone=True)
        return float(spans.shares(candidates)[spans.first])

    @torch.no_grad()
    def judge(self, candidates: Float[Tensor, "m d"]) -> Judgement:
        """Inconclusive: what the layers leave open of the pictures, the prior fills in."""
        loss, m = self.problem.loss, len(candidates)
        certificate = Certificate(
            Outcome.NOT_CONVERGED, self.unseen_loss(candidates), len(self.unseen), (UNCONFIRMED,) * m
        )
        if not m:
            return Judgement(1.0, candidates.new_zeros(0, 1), certificate)
        directions = loss.read(candidates)[loss.first]
        sizes = loss.combined(loss.first, directions).norm(dim=0)[:, None]
        left = float(loss.shares(candidates)[loss.first])
        return Judgement(left, sizes, certificate, {"unconfirmed_pictures": m})
