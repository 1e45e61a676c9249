"""Where to look for the next sample: rows that the residual points to.

With g_k = v_k / std(v), the moment of the residual

    Σ_k r_k (g_k g_kᵀ − I)  →  c_2 Σ_i α_i u_i u_iᵀ      over the samples i that are still missing,

so its eigenvectors of large |eigenvalue| point to them. Pure noise of the same size has eigenvalues up to about
2 √d ||r||: what is beyond that edge is structure. Where c_2 = 0 (tanh, erf, sigmoid) the moment is blind; there a pool
of random rows is improved by the power method of the activation itself, x ← Σ_k r_k φ'(v_k·x) v_k, which climbs to rows
whose features correlate with the residual.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import Activation, hermite_coefficients
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.gauss_newton import mean_square
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.rows import blocks

BLIND = 1e-6  # |c_2| below this: second moments say nothing
EDGE = 1.1
POOL_EIGENVECTORS, POOL_RANDOM, POOL_STEPS = 8, 24, 6


def moments_blind(activation: Activation) -> bool:
    """Whether the second moments of weights say nothing about the samples."""
    return abs(float(hermite_coefficients(activation, 2)[2])) < BLIND


@dataclass(frozen=True, eq=False, repr=False)
class Proposals:
    """Directions in the order of their weight, at the norm of a sample; `outside` of them leave the noise."""

    rows: Float[Tensor, "count d"]
    outside: int


def moment_proposals(loss: SpanLoss, residual: Float[Tensor, "k p"], norm: float, outside: float = EDGE) -> Proposals:
    """Eigenvectors of the residual's moment, largest |eigenvalue| first. One pass, and p d² operations an output.

    `outside`: how far, in units of the edge of noise, an eigenvalue counts as leaving it.

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
        sum_of_output = loss.ranks.total(float(output.double().sum()))
        moment = loss.ranks.sum(moment) / variance - sum_of_output * torch.eye(d, dtype=torch.float64).to(moment)
        squares += moment @ moment
    loss.count_passes(len(residual))
    values, vectors = torch.linalg.eigh(squares)
    edge = (outside * 2) ** 2 * d * loss.ranks.total(float(residual.double().square().sum()))
    return Proposals(to_norm(vectors.flip(1).T.to(residual.dtype).contiguous(), norm), int((values > edge).sum()))


def pooled_proposals(
    loss: SpanLoss, residual: Float[Tensor, "k p"], norm: float, generator: torch.Generator
) -> Proposals:
    """Rows whose features correlate with the residual, best first; those that point the same way are left out."""
    eigenvectors = moment_proposals(loss, residual, norm).rows[:POOL_EIGENVECTORS]
    pool = torch.cat([eigenvectors, random_rows(POOL_RANDOM, loss.features.d, norm, generator, residual)])
    strongest = _strongest_output(loss, residual)
    for _ in range(POOL_STEPS):
        climbed = _climb(loss, pool, strongest)
        led = climbed.norm(dim=1, keepdim=True) > 0  # nowhere, where nothing is left to explain
        pool = torch.where(led, to_norm(climbed, norm), pool)
    features = loss.features(pool)
    lengths = loss.ranks.sum(features.square().sum(dim=1)).clamp_min(1e-30)
    scores = loss.ranks.sum(features @ strongest).square() / lengths
    cosines = (pool @ pool.T).abs() / norm**2
    chosen: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        if all(float(cosines[index, other]) < 0.7 for other in chosen):
            chosen.append(index)
    return Proposals(pool[chosen], len(chosen))


def _strongest_output(loss: SpanLoss, residual: Float[Tensor, "k p"]) -> Float[Tensor, " p"]:
    """The combination of the outputs, of unit weight, that has most of the residual."""
    exact = residual.double()
    strongest = torch.linalg.eigh(loss.ranks.sum(exact @ exact.T)).eigenvectors[:, -1] @ exact
    size = loss.ranks.total(float(strongest.square().sum())) ** 0.5
    return (strongest / (size or 1.0)).to(residual.dtype)


def _climb(loss: SpanLoss, pool: Float[Tensor, "count d"], residual: Float[Tensor, " p"]) -> Float[Tensor, "count d"]:
    """± Σ_k r_k φ'(v_k·x) v_k, with the sign of each row's correlation. Two passes."""
    fit = loss.fit(pool)
    with torch.no_grad():
        slopes = loss.features.activation.derivative(fit.preactivations)
    signs = torch.sign(loss.ranks.sum(fit.features @ residual))[:, None]
    return signs * loss.pull_back(lambda block: slopes[:, block] * residual[block], pool)


def random_rows(
    count: int, d: int, norm: float, generator: torch.Generator, like: Float[Tensor, "..."]
) -> Float[Tensor, "count d"]:
    """Rows uniform on the sphere."""
    rows = torch.randn(count, d, generator=generator, dtype=torch.float64)
    return to_norm(rows, norm).to(like)
