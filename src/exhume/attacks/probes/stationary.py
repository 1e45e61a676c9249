"""Records told by where training came to rest, whatever optimiser took it there.

A head with L2 rests where the pull of its data and the penalty balance. With e_i the residual of record i at the
published weights (`residuals.py`) and φ_i its embedding,

    λ n W = Σ_{i trained on} e_i φ_iᵀ                                                  (k × h equations)

holds for L-BFGS, Adam with L2 in its loss, coordinate descent and a closed form alike. W is published, so e_i, and with
it the whole term c_i = e_i φ_iᵀ, is known for every record of a pool. The unknown numbers are z_i = 1/(λn) for training
records and 0 for others, so they are found by non-negative least squares over the pool:

    minimise ‖W − Σ_i z_i c_i‖²  over z ≥ 0        (inner products (e_i·e_j)(φ_i·φ_j): an m × m problem)

The bias has no part in it: most penalties leave it out. A head that stopped early from a start W(0) has
W(T) = c W(0) + Σ_i a_i φ_iᵀ; a known start is one more column of any factor, and e_i at the end stands for the
direction of a_i, which is rough.

Training records that are missing from the pool leave Σ_missing e_j φ_jᵀ / (λn): noise with the covariance of
embeddings, and so do steps of a batch around the resting point. Distances are therefore whitened, by Σ + εt I, with Σ
the pool's covariance and t its mean variance. Everybody in the pool enters Σ alike, so ranks among records that were
not trained on stay exact.

The score of a record is the contribution that it would get with all others as they are, in the norm of its own term:
|c_i| z_i where z_i > 0, and how far from any contribution it is, a negative number, elsewhere.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.probes.residuals import residuals

RIDGE = 0.1
"""ε. On embeddings of CIFAR-10 0.01 and 0.1 find the same share of members where half of them are missing (0.6 at 1 %
false alarms; 0.2 without whitening), and 0.1 more of them where Adam did not quite come to rest (0.92 to 0.84)."""
JITTER = 1e-8
"""Added to a Gram matrix of unit diagonal: copies of a record leave it singular."""
NEGLIGIBLE = 1e-12
"""Of the longest term: a record that the head fits to rounding pulls at nothing."""
PATIENCE = 30
"""Steps per record, after which scipy gives up."""
MOST_RECORDS = 3000
"""Of a pool: the time grows like their cube, 14 s for so many on one core."""


@dataclass(frozen=True, eq=False)
class Stationarity:
    """One score per record, and the share of the weights, whitened, that the records explain."""

    score: Float[Tensor, " m"]
    explained: float


def stationarity(
    head: Float[Tensor, "k p"],
    embeddings: Float[Tensor, "m p"],
    labels: Float[Tensor, " m"],
    loss: str,
    *,
    constant: bool = False,
    initial: Float[Tensor, "k p"] | None = None,
) -> Stationarity:
    """`constant`: whether the last feature is the 1 of a bias. `initial`: W(0), where it is known."""
    pool, weights = embeddings.double(), head.double()
    pull = residuals(pool @ weights.T, labels, loss)
    if constant:
        pool, weights = pool[:, :-1], weights[:, :-1]
    metric = _whitening(pool)
    white, target = pool @ metric, weights @ metric
    gram = (pull @ pull.T) * (white @ pool.T)
    moments = ((pull @ target) * pool).sum(dim=1)
    total = float((target * weights).sum())
    start = torch.zeros_like(weights) if initial is None else initial.double()[:, : weights.shape[1]]
    size = float((start @ metric * start).sum())
    if size > 0:  # a column of any factor: it is projected out of everything
        along, own = ((pull @ start) * white).sum(dim=1), float((target * start).sum())
        gram, moments = gram - along[:, None] * along / size, moments - along * own / size
        total -= own * own / size
    return _least_squares(gram, moments, total)


def _least_squares(gram: Float[Tensor, "m m"], moments: Float[Tensor, " m"], total: float) -> Stationarity:
    """In units in which every record's own term has norm 1; a record without a term (e = 0) scores 0."""
    from scipy.optimize import nnls

    lengths = gram.diagonal().clamp_min(0).sqrt()
    present = lengths > NEGLIGIBLE * float(lengths.max())
    scale = torch.where(present, lengths, torch.inf)
    unit = gram / scale / scale[:, None]
    wanted = moments / scale
    factor = torch.linalg.cholesky(unit + JITTER * torch.eye(len(unit), dtype=torch.float64))
    right = torch.linalg.solve_triangular(factor, wanted[:, None], upper=False)[:, 0]
    found = torch.from_numpy(nnls(factor.T.numpy(), right.numpy(), maxiter=PATIENCE * len(unit))[0])
    explained = float(found @ (2 * wanted - unit @ found)) / total if total > 0 else 0.0
    return Stationarity(wanted - unit @ found + found * present, explained)


def _whitening(pool: Float[Tensor, "m h"]) -> Float[Tensor, "h h"]:
    """(Σ + εt I)⁻¹, in units of 1/t."""
    centred = pool - pool.mean(dim=0)
    covariance = centred.T @ centred / len(pool)
    scale = float(covariance.diagonal().mean())
    identity = torch.eye(len(covariance), dtype=torch.float64)
    return torch.linalg.inv(covariance / scale + RIDGE * identity) if scale > 0 else identity
