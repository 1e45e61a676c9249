"""The search: the training is smoothed, and the smoothing taken back little by little.

Everything that jumps in a training (a gate that opens, a gradient that changes its sign under Adam) is replaced by what
is to be expected of it while samples are known up to an error of relative size σ (`dense_network.py`, `optimisers.py`).
As σ falls, each fit starts where the last one ended, and the jumps come back one by one.

The first stages are guided (`unrolled.py`): the guide is the training of the present guess, bent so that it ends at
the weights that are known,

    W̃(t) = W(t; X̂) + t / T (W(T) − W(T; X̂)),

which is nearly a straight line at the beginning of the search and the training itself at its end. Held-out weights are
not bent: of them the search knows what it predicts, and nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.replay.fitting import Fitted, Guess, ReplayLoss, SmoothedTraining, levenberg
from exhume.attacks.replay.unrolled import Path, Smoothing

GATE_WIDTH = 0.8  # of a gate, in σ times the root mean square of the layer's preactivations
FIRST_DAMPING = 1e-2
START_SIZE = 0.6


@dataclass(frozen=True)
class Stage:
    sigma: float
    guided: bool
    iterations: int
    products: int


GUIDED = (1.0, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.06, 0.3, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035)
ALONE = (0.3, 0.2, 0.12, 0.08, 0.05, 0.03, 0.02, 0.01, 0.003, 0.001, 3e-4, 1e-4, 0.0)


def stage(place: int) -> Stage:
    """The stages in their order: guided once, then alone, again and again, each time down to no smoothing.

    Smoothing that is raised again takes the guess out of where single gates and signs have held it.
    """
    if place < len(GUIDED):
        return Stage(GUIDED[place], True, 3, 40)
    return Stage(ALONE[(place - len(GUIDED)) % len(ALONE)], False, 4, 80)


def fit_stage(
    loss: ReplayLoss, stage: Stage, guess: Guess, damping: float, generator: torch.Generator
) -> Iterator[Fitted]:
    parts = loss.training.network.parts()
    path, squares = [loss.training.start], [0.0] * len(parts)
    for weights, gradient in loss.training.walk(guess.inputs, guess.targets):
        squares = [total + float(gradient[part].square().mean()) for total, part in zip(squares, parts, strict=True)]
        if stage.guided:
            path.append(weights)
    loss.counter.total += 1
    smoothing = smoothed(loss, stage.sigma, [total / loss.training.recipe.steps for total in squares], guess)
    guide = bent(loss, path) if stage.guided else None
    yield from levenberg(
        SmoothedTraining(loss, smoothing, guide), guess, damping, stage.iterations, stage.products, generator
    )


def bent(loss: ReplayLoss, path: Path) -> Path:
    """The way of the present guess, bent to end where the training ended; the list itself, to need no second one."""
    missing, steps = torch.where(loss.scale > 0, loss.end - path[-1], 0), len(path) - 1
    for t in range(1, len(path)):
        path[t] = path[t] + t / steps * missing
    return path


def smoothed(loss: ReplayLoss, sigma: float, squares: list[float], guess: Guess) -> Smoothing:
    """Blur and gates of relative size σ, in units of the gradients and preactivations of the present guess.

    `squares`: the mean square of a number's gradient on the way, per parameter."""
    network = loss.training.network
    if sigma == 0:
        return Smoothing.none(network)
    blur = torch.empty_like(loss.training.start)
    for part, square in zip(network.parts(), squares, strict=True):
        blur[part] = sigma**2 * square
    widths, inside = [], guess.inputs
    for layer in network.layers[:-1]:
        weight, bias = layer.split(loss.training.start)
        reached = inside @ weight.mT + (0.0 if bias is None else bias)
        widths.append(GATE_WIDTH * sigma * float(reached.square().mean().sqrt()))
        inside = reached.relu()
    return Smoothing(tuple(widths), blur)


def random_start(loss: ReplayLoss, labels: Float[Tensor, "n k"] | None, generator: torch.Generator) -> Guess:
    """Small random samples on the columns that were seen; targets of unknown labels are nearly the same for all."""
    training = loss.training
    like = training.start
    drawn = torch.rand(training.n, training.network.d, generator=generator, dtype=torch.float64).to(like) * START_SIZE
    if labels is None:
        k = training.network.outputs
        noise = torch.rand(training.n, k, generator=generator, dtype=torch.float64).to(like)
        labels = noise / noise.sum(dim=1, keepdim=True)
    return Guess(drawn * loss.seen.to(like.dtype), labels.to(like))
