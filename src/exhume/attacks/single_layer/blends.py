"""Could a candidate be a blend of two samples? What it would cost to split it.

Two samples x̂ ± δ with half of the coefficient each have the features of their mean x̂ but for the second order:

    Δ_i(δ) = (φ(z_i + V δ) + φ(z_i − V δ)) / 2 − φ(z_i).

What of A_i Δ_i no small change of coefficients and candidates makes up for would show in the weights. Where even at
||δ|| = 0.1 ||x̂_i|| it is below the noise, samples may lie that far from the candidate on both sides: neither is
recovered. Other shares of the coefficient, opposite ones among them, multiply Δ by 1 or more for samples as far away.

The direction of the least cost is looked for among three: the way to the nearest other candidate; the direction that
the equations determine least; and the least of ||P g ∘ Vδ ∘ Vδ'||², with g the second difference of φ, found in turns
for δ and δ'.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.retraction import tangent
from exhume.attacks.single_layer.linearised import TINY, Explanation, Linearised

APART = 0.1  # of a candidate's norm: as far as what is called recovered may be off
SHORTEST = 0.01  # of a way: how little samples may move along it, so that candidates do not leave by far
TURNS = 3  # after which the direction changes little
SECOND_DIFFERENCE = 0.1  # of the root mean square of a candidate's preactivations


@dataclass(frozen=True, eq=False)
class Lifted:
    """The samples that candidates stand for: how they move (`lifted_moves`), and their norms."""

    moves: Float[Tensor, "m e d"]
    norms: Float[Tensor, "m 1"]


def splitting_costs(at: Linearised, samples: Lifted | None = None) -> Float[Tensor, " m"]:
    """The least ||·||² that splitting each sample by 0.1 of its norm would leave in the weights.

    `samples`: those that candidates stand for. A way along which they hardly move (the drift of features beside a
    sample) is as long as it takes."""
    ways = [at.weakest, _least_bent(at), *_to_nearest(at)]
    inside = [torch.einsum("idu,ieu,ie->id", at.bases, at.bases, way) for way in ways]
    return _least_cost(at, inside, samples)


def rough_splitting_costs(at: Explanation) -> Float[Tensor, " m"]:
    """At random and towards the nearest candidate, at the norm of each: no less than the least."""
    stream = torch.Generator().manual_seed(0)
    ways = [torch.randn(at.candidates.shape, generator=stream).to(at.candidates), *_to_nearest(at)]
    return _least_cost(at, [tangent(way, at.candidates) for way in ways])


def _least_cost(
    at: Explanation, ways: list[Float[Tensor, "m d"]], samples: Lifted | None = None
) -> Float[Tensor, " m"]:
    costs, before = [], at.features(at.candidates)
    norms = at.candidates.norm(dim=1, keepdim=True) if samples is None else samples.norms
    for way in ways:
        moved = way if samples is None else torch.einsum("ied,id->ie", samples.moves, way)
        length = torch.maximum(moved.norm(dim=1, keepdim=True), SHORTEST * way.norm(dim=1, keepdim=True))
        apart = norms * way / length.clamp_min(TINY)
        ahead, behind = (at.features(at.candidates + sign * APART * apart) for sign in (1, -1))
        costs.append(at.not_made_up(at.change((ahead + behind) / 2 - before)).square().sum(dim=1))
    return torch.stack(costs).amin(dim=0)


def _to_nearest(at: Explanation) -> list[Float[Tensor, "m d"]]:
    if len(at.candidates) == 1:
        return []
    away = torch.cdist(at.candidates, at.candidates).fill_diagonal_(torch.inf)
    return [at.candidates[away.argmin(dim=1)] - at.candidates]


def _least_bent(at: Linearised) -> Float[Tensor, "m d"]:
    value, ways = at.features.activation.value, []
    preactivations = torch.cat([block for _, block in at.features.preactivation_blocks(at.candidates)], dim=1)
    for z, basis, way in zip(preactivations, at.bases, at.weakest, strict=True):
        step = SECOND_DIFFERENCE * z.square().mean().sqrt().clamp_min(TINY**0.25)
        with torch.no_grad():
            bent = (value(z + step) + value(z - step) - 2 * value(z)) / step.square()
        seen, place = at.rows @ basis, basis.T @ way
        for _ in range(TURNS):
            images = (bent * (seen @ place))[:, None] * seen
            images = images - at.spanned @ (at.spanned.T @ images)
            place = torch.linalg.eigh(images.T @ images).eigenvectors[:, 0]
        ways.append(basis @ place)
    return torch.stack(ways)
