"""Which candidates are not needed.

Removing candidate i and refitting the coefficients raises the loss by ||α_i||² / [(F Fᵀ)⁻¹]_ii. Extra candidates end
with α ≈ 0, as copies of another one, or as a ghost pair +u, −u with opposite coefficients, which adds nothing but a
linear term and can hide wrong signs (`both_signs.py`): copies are therefore merged up to sign. Where φ is smooth, weak
candidates near a strong one make up for the derivatives that it lacks while it is not yet in its place: none of these
satellites can be spared alone, so all of them are taken away at once and the strong one refined.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation import projection
from exhume.attacks.foundation.projection import invert_gram
from exhume.attacks.single_layer.span import Fit, SpanLoss

COPY_COSINE = 0.999
SATELLITE_COSINE = 0.95


def needed(
    gram: Float[Tensor, "m m"], moments: Float[Tensor, "m k"], energy: float, negligible: float
) -> Bool[Tensor, " m"]:
    """What is left when the cheapest candidate goes, one by one, while that raises L by no more than `negligible`."""
    kept = torch.arange(len(gram), device=gram.device)
    while len(kept) > 1:
        inverse = invert_gram(gram[kept][:, kept])
        diagonal = inverse.diagonal().clamp_min(torch.finfo(inverse.dtype).tiny)
        costs = (inverse @ moments[kept]).square().sum(dim=1) / diagonal / energy
        cheapest = int(costs.argmin())
        if not costs[cheapest] <= negligible:
            break
        kept = torch.cat([kept[:cheapest], kept[cheapest + 1 :]])
    mask = torch.zeros(len(gram), dtype=torch.bool, device=gram.device)
    mask[kept] = True
    return mask


def without_copies(
    candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"], cosine: float = COPY_COSINE
) -> Bool[Tensor, " m"]:
    """Keeps the strongest of each group of candidates that agree up to sign."""
    units = candidates / candidates.norm(dim=1, keepdim=True).clamp_min(torch.finfo(candidates.dtype).tiny)
    alike = (units @ units.T).abs() > cosine
    kept = torch.zeros(len(units), dtype=torch.bool, device=units.device)
    for index in coefficients.norm(dim=1).argsort(descending=True).tolist():
        kept[index] = not bool((alike[index] & kept).any())
    return kept


def cross_validated(loss: SpanLoss, fit: Fit) -> float:
    """L / (1 − (m (d − 1 + k) + k d) / (k p))²: generalised cross-validation, comparable between numbers of candidates.

    k counts independent outputs, each of which is one coefficient a candidate; k d is the free affine part.
    """
    m, d = fit.candidates.shape
    unknown = m * (d - 1 + loss.outputs) + loss.outputs * d
    return projection.cross_validated(fit.loss, unknown, loss.equations)
