"""Could a candidate be a blend of two samples? What it would cost to split it.

Two samples x̂ ± δ with half of the coefficient each have the features of their mean x̂ but for the second order:

    Δ_i(δ) = (φ(z_i + V δ) + φ(z_i − V δ)) / 2 − φ(z_i).

What of A_i Δ_i no first-order change of coefficients and candidates makes up for would show in the weights. Where even
at ||δ|| = 0.1 ||x̂_i|| it is below the noise, samples may lie that far from the candidate on both sides: neither is
recovered. Other shares of the coefficient, opposite ones among them, change Δ by a factor from 1 on for samples that are
as far away.

The direction of the least cost is looked for among three: the way to the nearest other candidate, the direction that the
equations determine least, and the least of ||P g ∘ Vδ ∘ Vδ'||², g the second difference of φ, found in turns for δ and δ'.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.linearised import Linearised
from exhume.attacks.single_layer.span import Fit, SpanLoss

APART = 0.1  # of a candidate's norm: as far as what is called recovered may be off
TURNS = 3
SECOND_DIFFERENCE = 0.1  # of a candidate's preactivations


def splitting_costs(loss: SpanLoss, fit: Fit, linearised: Linearised) -> Float[Tensor, " m"]:
    """The least ||·||² that splitting each candidate by 0.1 of its norm would leave in the weights."""
    candidates = fit.candidates.double()
    ways = [linearised.weakest(), _least_bent(loss, candidates, linearised)]
    if len(candidates) > 1:
        ways.append(_to_nearest(candidates, linearised))
    before, costs = linearised.values(loss, candidates), []
    for way in ways:
        apart = APART * candidates.norm(dim=1, keepdim=True) * way
        split = (linearised.values(loss, candidates + apart) + linearised.values(loss, candidates - apart)) / 2 - before
        changes = linearised.amplitudes[:, :, None] * split[:, None]
        costs.append(linearised.not_made_up(changes.reshape(len(changes), -1)).square().sum(dim=1))
    return torch.stack(costs).amin(dim=0)


def _to_nearest(candidates: Float[Tensor, "m d"], linearised: Linearised) -> Float[Tensor, "m d"]:
    away = torch.cdist(candidates, candidates).fill_diagonal_(torch.inf)
    ways = candidates[away.argmin(dim=1)] - candidates
    ways = torch.einsum("idu,ieu,ie->id", linearised.bases, linearised.bases, ways)
    return ways / ways.norm(dim=1, keepdim=True).clamp_min(torch.finfo(ways.dtype).tiny)


def _least_bent(loss: SpanLoss, candidates: Float[Tensor, "m d"], linearised: Linearised) -> Float[Tensor, "m d"]:
    value, ways = loss.features.activation.value, []
    preactivations = candidates @ linearised.rows.T
    if loss.features.bias is not None:
        preactivations += loss.features.bias.to(preactivations)
    for z, basis, way in zip(preactivations, linearised.bases, linearised.weakest(), strict=True):
        step = SECOND_DIFFERENCE * z.square().mean().sqrt().clamp_min(torch.finfo(z.dtype).tiny)
        with torch.no_grad():
            bent = (value(z + step) + value(z - step) - 2 * value(z)) / step.square()
        seen = linearised.rows @ basis
        at = basis.T @ way
        for _ in range(TURNS):
            images = (bent * (seen @ at))[:, None] * seen
            images = images - linearised.spanned @ (linearised.spanned.T @ images)
            at = torch.linalg.eigh(images.T @ images).eigenvectors[:, 0]
        ways.append(basis @ at)
    return torch.stack(ways)
