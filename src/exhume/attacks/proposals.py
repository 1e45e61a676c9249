"""Where to look for the next sample: rows that the residual points to.

With g_k = v_k / std(v), the moment of the residual

    Σ_k r_k (g_k g_kᵀ − I)  →  c_2 Σ_i α_i u_i u_iᵀ      over the samples i that are still missing,

so its eigenvectors of large |eigenvalue| point to them. Pure noise of the same size has eigenvalues up to about
2 √d ||r||: what is beyond that edge is structure.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gauss_newton import mean_square
from exhume.attacks.retraction import to_norm
from exhume.attacks.span import SpanLoss
from exhume.features.rows import blocks

EDGE = 1.1


@dataclass(frozen=True, eq=False)
class Proposals:
    """Directions in the order of their weight, at the norm of a sample; `outside` of them leave the noise."""

    rows: Float[Tensor, "count d"]
    outside: int


def moment_proposals(loss: SpanLoss, residual: Float[Tensor, "k p"], norm: float) -> Proposals:
    """Eigenvectors of the residual's moment, largest |eigenvalue| first. One pass, and p d² operations an output.

    With several outputs the squares of the moments are added: a sample shows in any of them.
    """
    d = loss.features.d
    variance = mean_square(loss)
    squares = torch.zeros(d, d, dtype=torch.float64, device=residual.device)
    for output in residual:
        moment = torch.zeros_like(squares)
        for block in blocks(loss.features.rows):
            rows = loss.features.rows.block(block.start, block.stop).to(output)
            moment += (rows * output[block, None]).T @ rows
        moment = moment / variance - float(output.double().sum()) * torch.eye(d, dtype=torch.float64).to(moment)
        squares += moment @ moment
    loss.count_passes(len(residual))
    values, vectors = torch.linalg.eigh(squares)
    edge = (EDGE * 2) ** 2 * d * float(residual.double().square().sum())
    return Proposals(to_norm(vectors.flip(1).T.to(residual.dtype).contiguous(), norm), int((values > edge).sum()))


def random_rows(
    count: int, d: int, norm: float, generator: torch.Generator, like: Float[Tensor, "..."]
) -> Float[Tensor, "count d"]:
    """Rows uniform on the sphere."""
    rows = torch.randn(count, d, generator=generator, dtype=torch.float64)
    return to_norm(rows, norm).to(like)


def capacity(p: int, d: int, share: float) -> int:
    """How many candidates leave enough equations: m d ≤ share · p, at least 2."""
    return max(2, math.floor(share * p / d))
