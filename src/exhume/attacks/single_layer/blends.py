"""Could a candidate be a blend of two samples? What it would cost to split it.

Two samples x̂ ± δ with half of the coefficient each have the features of their mean x̂ but for the second order:

    Δ_i(δ) = (φ(z_i + V δ) + φ(z_i − V δ)) / 2 − φ(z_i).

What of A_i Δ_i no small change of coefficients and candidates makes up for would show in the weights. Where even at
||δ|| = 0.1 ||x̂_i|| it is below the noise, samples may lie that far from the candidate on both sides: neither is
recovered. Other shares of the coefficient, opposite ones among them, multiply Δ by 1 or more for samples as far away.

Samples differ in directions that nobody chose by V: some are drawn at random, and one is the way to the nearest other
candidate, which is as data differ. A direction that is made to cross no kink of ReLU costs nothing, but no two samples
lie along it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.retraction import tangent
from exhume.attacks.single_layer.linearised import TINY, Explanation

APART = 0.1  # of a candidate's norm: as far as what is called recovered may be off
DIRECTIONS = 8  # at random; 4 to 32 call the same candidates but for 3 of 770, with 1 or 2 blends pass


@dataclass(frozen=True, eq=False, repr=False)
class Lifted:
    """The samples that candidates stand for: how they move (`lifted_moves`), and their norms."""

    moves: Float[Tensor, "m e d"]
    norms: Float[Tensor, "m 1"]


def splitting_costs(at: Explanation, free_norms: bool, samples: Lifted | None = None) -> Float[Tensor, " m"]:
    """The least by which what is left of the weights would rise if each sample were split by 0.1 of its norm.

    `free_norms`: samples may differ in norm, too. `samples`: those that candidates stand for."""
    norms = at.candidates.norm(dim=1, keepdim=True) if samples is None else samples.norms
    costs, before = [], at.features(at.candidates)
    for way in _ways(at.candidates):
        way = way if free_norms else tangent(way, at.candidates)
        moved = way if samples is None else torch.einsum("ied,id->ie", samples.moves, way)
        apart = norms * way / moved.norm(dim=1, keepdim=True).clamp_min(TINY)
        ahead, behind = (at.features(at.candidates + sign * APART * apart) for sign in (1, -1))
        costs.append(at.rise(at.not_made_up(at.change((ahead + behind) / 2 - before))))
    return torch.stack(costs).amin(dim=0)


def _ways(candidates: Float[Tensor, "m d"]) -> list[Float[Tensor, "m d"]]:
    stream = torch.Generator().manual_seed(0)
    ways = [torch.randn(candidates.shape, generator=stream).to(candidates) for _ in range(DIRECTIONS)]
    if len(candidates) > 1:
        away = torch.cdist(candidates, candidates).fill_diagonal_(torch.inf)
        ways.append(candidates[away.argmin(dim=1)] - candidates)
    return ways
