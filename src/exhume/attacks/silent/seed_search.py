"""A start known only by its seed: draw the layer again for each seed, and take the one that the layer grew from.

Training leaves most of a start in the weights, so W(T) points along W(0) and along no other draw: over N numbers the
cosine of W(T) with another draw is within a few 1/√N of zero. The first rows of the layer are enough for that. A seed
that passes is confirmed by what only the right start has: W(T) − W(0) is low in rank.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

ROWS = 16
DEVIATIONS = 8.0  # of a cosine by chance: 6e-16 per seed
CLEAR = 1e-3  # share of the energy of a change that its weaker half of directions may hold; of a wrong start it is 0.05

Draw = Callable[[int, int], Float[Tensor, "rows d"]]
"""The first rows of the layer as a seed makes it: of the seed, and of how many rows."""


@dataclass(frozen=True)
class SeedTried:
    seed: int
    cosine: float
    fits: bool


def try_seeds(published: Float[Tensor, "h d"], draw: Draw, seeds: int) -> Iterator[SeedTried]:
    """Seeds 0, 1, 2, ... until one fits."""
    rows = min(ROWS, len(published))
    seen = published[:rows].flatten()
    seen = seen / seen.norm().clamp_min(torch.finfo(seen.dtype).tiny)
    for seed in range(seeds):
        drawn = draw(seed, rows).flatten()
        cosine = float(seen @ drawn / drawn.norm().clamp_min(torch.finfo(drawn.dtype).tiny))
        alike = cosine * math.sqrt(len(seen)) > DEVIATIONS
        fits = alike and weak_share(published.double() - draw(seed, len(published)).double()) < CLEAR
        yield SeedTried(seed, cosine, fits)
        if fits:
            return


def default_rows(layer: nn.Linear, skipped: int = 0) -> Draw:
    """How torch draws a linear layer: uniform in ± 1/√d, row after row, behind numbers that other layers take."""
    bound, d, kind = _bound(layer), layer.in_features, layer.weight.dtype
    stream = torch.Generator()

    def draw(seed: int, rows: int) -> Float[Tensor, "rows d"]:
        numbers = torch.empty(skipped + rows * d, dtype=kind)
        return numbers.uniform_(-bound, bound, generator=stream.manual_seed(seed))[skipped:].view(rows, d)

    return draw


def place_in_stream(layer: nn.Linear, seed: int, most: int) -> int | None:
    """How many numbers of the seed's stream were taken before the layer's; None where they are not among the first.

    Every default initialisation takes one number of the stream per weight, so the place is the same for all seeds. It
    is looked for, and not counted: what other layers take is theirs.
    """
    weight = layer.weight.detach().flatten()
    stream = torch.Generator().manual_seed(seed)
    bound = _bound(layer)
    numbers = torch.empty(most + len(weight), dtype=weight.dtype).uniform_(-bound, bound, generator=stream)
    for place in (numbers[: most + 1] == weight[0]).nonzero()[:, 0].tolist():
        if torch.equal(numbers[place : place + len(weight)], weight):
            return int(place)
    return None


def _bound(layer: nn.Linear) -> float:
    """As torch computes it, to the last digit."""
    gain = nn.init.calculate_gain("leaky_relu", math.sqrt(5))
    return math.sqrt(3.0) * (gain / math.sqrt(layer.in_features))


def weak_share(change: Float[Tensor, "h c"]) -> float:
    """The energy of the weaker half of the directions of a change, over all of it. No change has none: a layer that was
    frozen is as its seed drew it.

    >>> stream = torch.Generator().manual_seed(0)
    >>> noise = torch.randn(40, 300, generator=stream)
    >>> weak_share(noise) > 0.2, weak_share(noise[:, :5] @ torch.randn(5, 300, generator=stream)) < 1e-9
    (True, True)
    """
    change = change.double()
    small = change @ change.T if len(change) < change.shape[1] else change.T @ change
    energies = torch.linalg.eigvalsh(small).clamp_min(0)
    total = float(energies.sum())
    return float(energies[: len(energies) // 2].sum()) / total if total > 0 else 0.0
