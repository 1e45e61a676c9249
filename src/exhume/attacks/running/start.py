"""The head before training, where it is known up to its seed, and how much of it weight decay has left.

Training turns W(0) into W(T) = c W(0) + Δ, where Δ is what an attack explains by features. c is 1 for plain gradient
descent and (1 − ηλ)^T for T steps of η with weight decay λ. Two facts make both the seed and c easy to find:

- Δ lies in the span of n features, among p ≫ n dimensions, so W(T) still points along W(0). Heads of other seeds are
  random directions: the cosine of one with W(T) over N = k p numbers is as far from 0 as that of two random vectors,
  t = cos √((N − 1) / (1 − cos²)) being Student's. A seed is found when so large a t would come up by chance in less
  than a millionth of such searches.
- c = ⟨W(T), W(0)⟩ / ||W(0)||², least squares. It falls short of the true c by about its share n / p of the dimensions,
  because training also takes away what W(0) said about the training data itself.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from scipy.special import stdtr
from torch import Tensor

from exhume.errors import ExhumeError, UsageError
from exhume.features.network import drawn_head
from exhume.observation import Observation
from exhume.start_rule import normal_head

CHANCE = 1e-6  # of finding a wrong seed in a whole search
SEEDS = 1000


@dataclass(frozen=True, eq=False)
class FoundStart:
    """What a search came to: the observation for an attack, and, if a seed was found, which one and how sure it is.

    `seed` None: no seed of the `tried` ones fits, and the head before training stays noise on the weights.
    `explained` is the share of the published head that c W(0) makes up.
    """

    observation: Observation
    tried: int
    seed: int | None = None
    scale: float | None = None
    explained: float = 0.0

    def describe(self) -> str:
        if self.seed is None or self.scale is None:
            return (
                f"start: none of the seeds below {self.tried:,} draws a head that this one grew from; "
                "the initial head stays as noise on the weights"
            )
        return (
            f"start: seed {self.seed} draws the initial head; {self.scale:.4f} of it is left in the published head "
            f"({100 * self.explained:.3g} % of its energy)"
        )

    def summary(self) -> dict[str, float | int | None]:
        return {"start_seed": self.seed, "start_scale": self.scale}


def scale_left(trained: Float[Tensor, "k p"], initial: Float[Tensor, "k p"]) -> float:
    """c, the multiple of the initial head that is left in the trained one, by least squares."""
    energy = float(initial.double().square().sum())
    if energy == 0:
        raise UsageError("expected an initial head that differs from zero, found all of it zero")
    return float((trained.double() * initial.double()).sum()) / energy


def find_start(observation: Observation, seeds: int = SEEDS) -> FoundStart:
    """Tries the seeds 0, 1, 2, ... on an observation whose start is known up to its seed; others come back as is."""
    if seeds < 1:
        raise UsageError(f"expected at least 1 seed to try, found {seeds}")
    if observation.knowledge.initial != "seed":
        return FoundStart(observation, 0)
    for seed in range(seeds):
        head = drawn(observation, seed)
        cosine = _cosine(observation.weights, head)
        if _by_chance(cosine, head.numel()) * seeds < CHANCE:
            return _shown(observation, head, seed, cosine, seeds)
    knowledge = replace(observation.knowledge, initial="distribution")
    return FoundStart(replace(observation, knowledge=knowledge, start=None), seeds)


def drawn(observation: Observation, seed: int) -> Float[Tensor, "k p"]:
    """The head that the observation's rule draws from a seed."""
    rule, features = observation.start, observation.features
    if rule is None:
        raise ExhumeError("expected an observation that says how its head was drawn, found none")
    if rule.kind == "normal":
        head = normal_head(rule.outputs, rule.width, seed)
    else:
        if features.source is None:
            raise ExhumeError("expected the features of a network that can be built again, found others")
        head = drawn_head(features.source, seed)
    kept = head if rule.kept is None else head[:, rule.kept]
    if kept.shape != observation.weights.shape:
        raise ExhumeError(
            f"expected a rule for heads of shape {list(observation.weights.shape)}, found {list(kept.shape)}"
        )
    return kept.to(observation.weights)


def without_start(observation: Observation, head: Float[Tensor, "k p"], scale: float) -> Observation:
    """The observation of somebody who knows the initial head: its weights are W(T) − c W(0)."""
    change = observation.weights.double() - scale * head.double()
    knowledge = replace(observation.knowledge, initial="known")
    weights = change.to(observation.weights)
    return replace(observation, weights=weights, knowledge=knowledge, start=None, head=observation.weights)


def _shown(observation: Observation, head: Tensor, seed: int, cosine: float, tried: int) -> FoundStart:
    scale = scale_left(observation.weights, head)
    return FoundStart(without_start(observation, head, scale), tried, seed, scale, cosine**2)


def _cosine(left: Tensor, right: Tensor) -> float:
    left, right = left.double().flatten(), right.double().flatten()
    size = float(left.norm() * right.norm())
    return float(torch.dot(left, right)) / size if size > 0 else 0.0


def _by_chance(cosine: float, numbers: int) -> float:
    """The chance of so large a cosine between two random directions in so many dimensions."""
    if numbers < 2:
        return 1.0
    spread = max(1 - cosine**2, torch.finfo(torch.float64).eps)
    return float(stdtr(numbers - 1, -cosine * math.sqrt((numbers - 1) / spread)))
