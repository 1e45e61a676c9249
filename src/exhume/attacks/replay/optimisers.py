"""One step of an optimiser, number by number, with its derivative and the transpose of it.

All of them take a gradient g and weights w to new weights and new averages:

    sgd     g' = g + λ w          m = μ m + g'                                             w − η m
    adam    g' = g + λ w          m = β₁ m + (1 − β₁) g',  v = β₂ v + (1 − β₂) g'²         w − η m̂ / (√v̂ + ε)
    adamw   w ← (1 − η λ) w, then as adam with λ = 0

*Smoothing.* Adam's step is nearly the sign of a gradient that keeps its direction. Of a gradient that is known up to an
error of size s, what is to be expected is the mean over that error, close to m̂ / √(v̂ + s²): smooth where the sign
jumps, with a slope where the sign has none. `blur` is s², per number; 0 is the optimiser itself.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.recipe import Recipe

Flat = Float[Tensor, " p"]


@dataclass(frozen=True, eq=False, repr=False)
class Averages:
    """m, and v where the optimiser keeps one."""

    first: Flat
    second: Flat | None

    @classmethod
    def zero(cls, recipe: Recipe, like: Flat) -> "Averages":
        return cls(torch.zeros_like(like), None if recipe.optimiser == "sgd" else torch.zeros_like(like))


@dataclass(frozen=True, eq=False, repr=False)
class Slopes:
    """Of Adam's step: ∂v/∂g', ∂step/∂m and −∂step/∂v. None of them for SGD, which is linear."""

    growth: Flat
    by_first: Flat
    by_second: Flat


def kept(recipe: Recipe) -> float:
    """What decoupled weight decay leaves of the weights in a step."""
    return 1 - recipe.rate * recipe.weight_decay if recipe.optimiser == "adamw" else 1.0


def coupled(recipe: Recipe) -> float:
    """λ, where it goes through the gradient."""
    return 0.0 if recipe.optimiser == "adamw" else recipe.weight_decay


def advance(
    recipe: Recipe, step: int, weights: Flat, gradient: Flat, averages: Averages, blur: Flat | float
) -> tuple[Flat, Averages, Slopes | None]:
    """The step with this number, counted from 1."""
    decay = coupled(recipe)
    if decay:
        gradient = gradient + decay * weights
    if averages.second is None:
        first = recipe.momentum * averages.first + gradient
        return weights - recipe.rate * first, Averages(first, None), None
    (low, high), rate, unbias = recipe.betas, *_corrections(recipe, step)
    first = torch.add(low * averages.first, gradient, alpha=1 - low)
    second = torch.addcmul(high * averages.second, gradient, gradient, value=1 - high)
    root = (unbias * second + blur).sqrt()
    by_first = rate / (root + recipe.eps)
    by_second = (0.5 * unbias / rate) * first * by_first.square() / root.clamp_min(recipe.eps * 1e-3)
    slopes = Slopes(2 * (1 - high) * gradient, by_first, by_second)
    return torch.addcmul(kept(recipe) * weights, by_first, first, value=-1), Averages(first, second), slopes


def push(
    recipe: Recipe, slopes: Slopes | None, weights: Flat, gradient: Flat, averages: Averages
) -> tuple[Flat, Averages]:
    """The derivative of `advance` along these directions."""
    decay = coupled(recipe)
    if decay:
        gradient = gradient + decay * weights
    if slopes is None or averages.second is None:
        first = recipe.momentum * averages.first + gradient
        return weights - recipe.rate * first, Averages(first, None)
    low, high = recipe.betas
    first = torch.add(low * averages.first, gradient, alpha=1 - low)
    second = torch.addcmul(high * averages.second, slopes.growth, gradient)
    moved = torch.addcmul(kept(recipe) * weights, slopes.by_first, first, value=-1)
    return torch.addcmul(moved, slopes.by_second, second), Averages(first, second)


def pull(recipe: Recipe, slopes: Slopes | None, weights: Flat, averages: Averages) -> tuple[Flat, Flat, Averages]:
    """The transpose of `push`: cotangents of the weights before, of the gradient, and of the averages before."""
    decay = coupled(recipe)
    if slopes is None or averages.second is None:
        first = averages.first - recipe.rate * weights
        gradient, before = first, Averages(recipe.momentum * first, None)
    else:
        low, high = recipe.betas
        first = torch.addcmul(averages.first, slopes.by_first, weights, value=-1)
        second = torch.addcmul(averages.second, slopes.by_second, weights)
        gradient = torch.addcmul((1 - low) * first, slopes.growth, second)
        weights, before = kept(recipe) * weights, Averages(low * first, high * second)
    return (weights + decay * gradient if decay else weights), gradient, before


def _corrections(recipe: Recipe, step: int) -> tuple[float, float]:
    """η / (1 − β₁ᵗ) and 1 / (1 − β₂ᵗ)."""
    low, high = recipe.betas
    return recipe.rate / (1 - low**step), 1 / (1 - high**step)
