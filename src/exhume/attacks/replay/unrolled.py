"""The whole training as a function of the samples, F(X, Y) = W(T), with products of its Jacobian forward and backward.

*Guided.* Single shooting lets an early error of the samples bend all of the way that follows. With a `guide`, weights
W̃(1) … W̃(T−1) that are taken for the way, gradients are taken at W̃(t) whatever the samples make of it, and F becomes a
sum over samples that passes through the optimiser once: its landscape is far smoother. Only the optimiser's own decay
still reads the weights that it makes.

*Memory.* The derivative needs every step's activations. Where all of them do not fit, only the weights and averages at
every √T-th step are kept, and the steps between two of them are made again when a product comes by. Two linearisations
are there at a time: where a fit stands, and where it would go.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.replay import optimisers
from exhume.attacks.replay.dense_network import DenseNetwork, Pass
from exhume.attacks.replay.optimisers import Averages, Flat, Slopes
from exhume.recipe import Recipe

Path = list[Flat]
COPIES = 16  # of all weights: both ends, scales, residuals, and what conjugate gradients keep


@dataclass(frozen=True, eq=False, repr=False)
class Smoothing:
    """Gate widths per hidden layer, and s² of the optimiser per number."""

    widths: tuple[float, ...]
    blur: Flat | float = 0.0

    @classmethod
    def none(cls, network: DenseNetwork) -> "Smoothing":
        return cls((0.0,) * (len(network.layers) - 1))


@dataclass(frozen=True, eq=False, repr=False)
class Training:
    """A network, its weights before training, and the recipe. `memory` bounds what a fit keeps, in bytes."""

    network: DenseNetwork
    recipe: Recipe
    start: Flat
    n: int
    memory: float = math.inf
    batches: tuple[Int[Tensor, " b"] | None, ...] = field(init=False)
    """The samples of each step, None for all of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", tuple(_batches(self.recipe, self.n)))

    def path(self, inputs: Float[Tensor, "n d"], targets: Float[Tensor, "n k"]) -> tuple[Path, Path]:
        """The weights W(0) … W(T) of training without smoothing, and the gradients on the way."""
        path, gradients = [self.start], []
        for weights, gradient in self.walk(inputs, targets):
            path.append(weights)
            gradients.append(gradient)
        return path, gradients

    def end(
        self, inputs: Tensor, targets: Tensor, smoothing: Smoothing | None = None, guide: Path | None = None
    ) -> Flat:
        """W(T) alone."""
        weights = self.start
        for after, _ in self.walk(inputs, targets, smoothing, guide):
            weights = after
        return weights

    def linearise(
        self,
        inputs: Float[Tensor, "n d"],
        targets: Float[Tensor, "n k"],
        smoothing: Smoothing,
        guide: Path | None = None,
    ) -> "LinearisedTraining":
        return LinearisedTraining(self, inputs, targets, smoothing, guide)

    @property
    def step_bytes(self) -> int:
        """What the record of one step keeps."""
        rows = self.n if self.recipe.batch_size is None else min(self.n, self.recipe.batch_size)
        numbers = rows * sum(layer.inputs + 4 * layer.outputs for layer in self.network.layers)
        return (numbers + 4 * self.network.p) * self.start.element_size()

    @property
    def segment(self) -> int:
        """Steps whose records are kept together."""
        return self.recipe.steps if self.bytes_with(self.recipe.steps) <= self.memory else self._shortest

    @property
    def least_bytes(self) -> int:
        """What a fit needs."""
        return min(self.bytes_with(self.recipe.steps), self.bytes_with(self._shortest))

    @property
    def _shortest(self) -> int:
        return math.isqrt(self.recipe.steps - 1) + 1

    def bytes_with(self, segment: int) -> int:
        """Of a fit whose linearisations keep so many steps together: the guide, two linearisations, and copies."""
        weights, steps = self.network.p * self.start.element_size(), self.recipe.steps
        state = weights * (2 if self.recipe.optimiser == "sgd" else 3)
        records, whole = segment * self.step_bytes, segment >= steps
        kept = (math.ceil(steps / segment) + 1) * state + (records if whole else 0)
        return (steps + COPIES) * weights + 2 * kept + (0 if whole else 2 * records)

    def walk(
        self, inputs: Tensor, targets: Tensor, smoothing: Smoothing | None = None, guide: Path | None = None
    ) -> Iterator[tuple[Flat, Flat]]:
        """Of each step the weights after it and the gradient."""
        weights, averages = self.start, Averages.zero(self.recipe, self.start)
        smoothing = Smoothing.none(self.network) if smoothing is None else smoothing
        for t, batch in enumerate(self.batches):
            at = weights if guide is None else guide[t]
            gradient, _ = self.network.gradient(at, _rows(inputs, batch), _rows(targets, batch), smoothing.widths)
            weights, averages, _ = optimisers.advance(self.recipe, t + 1, weights, gradient, averages, smoothing.blur)
            yield weights, gradient


@dataclass(frozen=True, eq=False)
class _Record:
    step: int
    passed: Pass
    slopes: Slopes | None


class LinearisedTraining:
    """F at a point, `end`, with J · (dX, dY) and Jᵀ · u."""

    def __init__(
        self, training: Training, inputs: Tensor, targets: Tensor, smoothing: Smoothing, guide: Path | None
    ) -> None:
        self.training, self.inputs, self.targets = training, inputs, targets
        self.smoothing, self.guide = smoothing, guide
        self._states: list[tuple[Flat, Averages]] = [(training.start, Averages.zero(training.recipe, training.start))]
        self._kept: list[_Record] = []
        steps, length = training.recipe.steps, training.segment
        for first in range(0, steps, length):
            records, state = self._segment(first)
            self._states.append(state)
            self._kept = records
        self.end = self._states[-1][0]
        if length < steps:
            self._kept = []

    def push(self, inputs: Float[Tensor, "n d"], targets: Float[Tensor, "n k"] | None) -> Flat:
        training, recipe = self.training, self.training.recipe
        weights, averages = torch.zeros_like(self.end), Averages.zero(recipe, self.end)
        for record in self._records(backwards=False):
            batch = training.batches[record.step]
            moved = weights if self.guide is None and record.step > 0 else None
            gradient = training.network.push(
                record.passed, _rows(inputs, batch), None if targets is None else _rows(targets, batch), moved
            )
            weights, averages = optimisers.push(recipe, record.slopes, weights, gradient, averages)
        return weights

    def pull(self, cotangent: Flat) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n k"]]:
        training, recipe = self.training, self.training.recipe
        inputs, targets = torch.zeros_like(self.inputs), torch.zeros_like(self.targets)
        weights, averages = cotangent, Averages.zero(recipe, cotangent)
        for record in self._records(backwards=True):
            weights, gradient, averages = optimisers.pull(recipe, record.slopes, weights, averages)
            fed_back = self.guide is None and record.step > 0
            to_inputs, to_targets, to_weights = training.network.pull(record.passed, gradient, fed_back)
            if to_weights is not None:
                weights = weights + to_weights
            batch = training.batches[record.step]
            if batch is None:
                inputs += to_inputs
                targets += to_targets
            else:
                inputs.index_add_(0, batch, to_inputs)
                targets.index_add_(0, batch, to_targets)
        return inputs, targets

    def _records(self, backwards: bool) -> Iterator[_Record]:
        if self._kept:
            yield from reversed(self._kept) if backwards else self._kept
            return
        firsts = range(0, self.training.recipe.steps, self.training.segment)
        for first in reversed(firsts) if backwards else firsts:
            records, _ = self._segment(first)
            yield from reversed(records) if backwards else records

    def _segment(self, first: int) -> tuple[list[_Record], tuple[Flat, Averages]]:
        """The steps from one kept state up to the next, made again."""
        training, smoothing = self.training, self.smoothing
        weights, averages = self._states[first // training.segment]
        records = []
        for t in range(first, min(first + training.segment, training.recipe.steps)):
            batch = training.batches[t]
            at = weights if self.guide is None else self.guide[t]
            gradient, passed = training.network.gradient(
                at, _rows(self.inputs, batch), _rows(self.targets, batch), smoothing.widths
            )
            weights, averages, slopes = optimisers.advance(
                training.recipe, t + 1, weights, gradient, averages, smoothing.blur
            )
            records.append(_Record(t, passed, slopes))
        return records, (weights, averages)


def _rows(values: Tensor, batch: Tensor | None) -> Tensor:
    return values if batch is None else values[batch]


def _batches(recipe: Recipe, n: int) -> Iterator[Tensor | None]:
    if recipe.batch_size is None:
        yield from [None] * recipe.steps
        return
    stream, made = torch.Generator().manual_seed(recipe.batch_seed), 0
    while made < recipe.steps:
        for batch in torch.randperm(n, generator=stream).split(recipe.batch_size)[: recipe.steps - made]:
            yield batch
            made += 1
