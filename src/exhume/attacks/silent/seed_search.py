"""A start that is only known by its seed: the seed whose weights make the change of a layer low in rank.

W̃(T) − W̃(0) has the rank of the training data for the right start, and full rank for any other. A few rows are enough to
see it: s rows of a change of rank r < s have s − r singular values at rounding. So each seed costs one draw of the
model and one small spectrum. Drawing is most of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

ROWS = 160
CLEAR = 1e-3  # share of the energy of a change that its weaker half of directions may hold: rounding holds 1e-6 or less


@dataclass(frozen=True)
class SeedTried:
    """`weak`: the share of energy in the weaker half of the directions; near its value for noise at wrong seeds."""

    seed: int
    weak: float

    @property
    def fits(self) -> bool:
        return self.weak < CLEAR


def try_seeds(
    published: Float[Tensor, "h c"], drawn: Callable[[int], Float[Tensor, "h c"]], seeds: int
) -> Iterator[SeedTried]:
    """Seeds 0, 1, 2, ... until one fits. `drawn` gives the layer as a seed makes it."""
    rows = min(ROWS, len(published), published.shape[1])
    for seed in range(seeds):
        tried = SeedTried(seed, weak_share(published[:rows].double() - drawn(seed)[:rows].double()))
        yield tried
        if tried.fits:
            return


def weak_share(change: Float[Tensor, "s c"]) -> float:
    """The energy of the weaker half of the directions of some rows, over all of it.

    >>> stream = torch.Generator().manual_seed(0)
    >>> noise = torch.randn(40, 300, generator=stream)
    >>> weak_share(noise) > 0.2, weak_share(noise[:, :5] @ torch.randn(5, 300, generator=stream)) < 1e-9
    (True, True)
    """
    change = change.double()
    energies = torch.linalg.eigvalsh(change @ change.T).clamp_min(0)
    total = float(energies.sum())
    return float(energies[: len(energies) // 2].sum()) / total if total > 0 else 1.0
