"""Could a candidate be a blend of two samples? What it would cost to split it.

Two samples x̂ ± δ with half of the coefficient each have the features of their mean x̂ but for the second order:

    Δ_i(δ) = (φ(z_i + V δ) + φ(z_i − V δ)) / 2 − φ(z_i).

What of A_i Δ_i no small change of coefficients and candidates makes up for would show in the weights. Where even at
||δ|| = 0.1 ||x̂_i|| it is below the noise, samples may lie that far from the candidate on both sides: neither is
recovered. Other shares of the coefficient, opposite ones among them, multiply Δ by 1 or more for samples as far away.

Samples differ in directions that nobody chose by V: some are drawn at random, and one is the way to the nearest other
candidate, which is as data differ. A direction that is made to cross no kink of ReLU costs nothing, but no two samples
lie along it.

*The others.* What is made up for is made up by the other candidates, which move. Where one candidate may be a blend,
the others are where they are only if it is none: the split grows with ||δ||² until it shows, and as far as others move
then, they are not known.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import APART
from exhume.attacks.foundation.retraction import tangent
from exhume.attacks.single_layer.linearised import TINY, Explanation, Linearised

WHOLE = APART**-2  # two samples on a sphere are at most a norm away from their mean
DIRECTIONS = 8  # at random; 4 to 32 call the same candidates but for 3 of 770, with 1 or 2 blends pass


@dataclass(frozen=True, eq=False, repr=False)
class Lifted:
    """The samples that candidates stand for: how they move (`lifted_moves`), and their norms."""

    moves: Float[Tensor, "m e d"]
    norms: Float[Tensor, "m 1"]


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """Each candidate split by 0.1 of its norm, in each of several ways.

    `left`: ||c||² of what nothing makes up for, `along`: its product with what is left of the weights. `moves`: how far
    candidate j moves, over its norm, to make up for the split of i; None where there are too many to tell."""

    left: Float[Tensor, "w m"]
    along: Float[Tensor, "w m"]
    moves: Float[Tensor, "w m m"] | None

    @property
    def costs(self) -> Float[Tensor, " m"]:
        """The least by which what is left of the weights would rise."""
        return (self.left - 2 * self.along).amin(dim=0)

    def swayed(self, hidden: float) -> Float[Tensor, " m"]:
        """Squares of how far each moves, over its norm, where others that may be blends are split until it shows."""
        if self.moves is None:
            return torch.zeros_like(self.costs)
        size = (self.along + (self.along.square() + self.left * hidden).sqrt()) / self.left.clamp_min(TINY)
        moved = (size.clamp_max(WHOLE)[:, :, None] * self.moves).square().amax(dim=0)
        return (moved * (self.costs <= hidden)[:, None]).sum(dim=0)


def splits(at: Explanation, free_norms: bool, samples: Lifted | None = None) -> Splits:
    """`free_norms`: samples may differ in norm, too. `samples`: those that candidates stand for."""
    norms = at.candidates.norm(dim=1, keepdim=True) if samples is None else samples.norms
    lifts = None if samples is None else samples.moves
    left, along, moves = [], [], []
    before = at.features(at.candidates)
    for way in ways(at.candidates):
        way = way if free_norms else tangent(way, at.candidates)
        moved = way if lifts is None else torch.einsum("ied,id->ie", lifts, way)
        apart = norms * way / moved.norm(dim=1, keepdim=True).clamp_min(TINY)
        ahead, behind = (at.features(at.candidates + sign * APART * apart) for sign in (1, -1))
        change = at.change((ahead + behind) / 2 - before)
        kept = at.not_made_up(change)
        left.append(kept.square().sum(dim=1))
        along.append(kept @ at.residual)
        if isinstance(at, Linearised):
            moves.append(at.moves_against(change, lifts) / norms[:, 0])
    return Splits(torch.stack(left), torch.stack(along), torch.stack(moves) if moves else None)


def ways(candidates: Float[Tensor, "m d"]) -> list[Float[Tensor, "m d"]]:
    stream = torch.Generator().manual_seed(0)
    ways = [torch.randn(candidates.shape, generator=stream).to(candidates) for _ in range(DIRECTIONS)]
    if len(candidates) > 1:
        away = torch.cdist(candidates, candidates).fill_diagonal_(torch.inf)
        ways.append(candidates[away.argmin(dim=1)] - candidates)
    return ways
