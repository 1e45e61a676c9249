"""Weighted Gram matrices, one per start, and the systems they make: where the search spends its time.

    M_i = Σ_k w_ik y_k y_kᵀ,        M_i q_i = z_i.

All are symmetric and positive, so they are solved by Cholesky's factorisation: half the work of a general one.
"""

import torch
from jaxtyping import Float
from torch import Tensor

WIDE = 128  # columns from which on it pays to leave out the rows that hardly count, start by start
COUNTS = 1e-3  # of the largest weight: what is below is left out there


def weighted_grams(rows: Float[Tensor, "u r"], weights: Float[Tensor, "m u"]) -> Float[Tensor, "m r r"]:
    """M_i for each row of weights."""
    if rows.shape[1] < WIDE:
        return torch.matmul(rows.T * weights[:, None, :], rows)
    grams = rows.new_empty(len(weights), rows.shape[1], rows.shape[1])
    for gram, own in zip(grams, weights, strict=True):
        kept = (own > COUNTS * own.max()).nonzero()[:, 0]
        part = rows[kept] * own[kept].sqrt()[:, None]
        torch.matmul(part.T, part, out=gram)
    return grams


def solve_positive(grams: Float[Tensor, "m r r"], sides: Float[Tensor, "m r"], share: float) -> Float[Tensor, "m r"]:
    """M_i⁻¹ z_i, with `share` of its mean diagonal added to M_i in place, more where rounding made it indefinite."""
    diagonal = grams.diagonal(dim1=1, dim2=2)
    size = diagonal.mean(dim=1)
    diagonal.add_((share * size)[:, None] + torch.finfo(grams.dtype).tiny)
    factors, failed = torch.linalg.cholesky_ex(grams)
    for index in failed.nonzero()[:, 0].tolist():
        factors[index] = _damped_factor(grams[index], float(size[index]))
    return torch.cholesky_solve(sides[:, :, None], factors)[:, :, 0]


def _damped_factor(gram: Float[Tensor, "r r"], size: float) -> Float[Tensor, "r r"]:
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    damping = 100 * torch.finfo(gram.dtype).eps * size
    for _ in range(12):
        factor, failed = torch.linalg.cholesky_ex(gram + damping * eye)
        if not int(failed):
            return factor
        damping *= 10
    return eye  # not finite: no direction is better than another
