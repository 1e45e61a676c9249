"""Records found by where training came to rest, whatever optimiser took it there.

A head with L2 rests where the pull of its data and the penalty balance. With e_i the residual of record i at the
published weights (`residuals.py`) and φ_i its embedding,

    λ n W = Σ_{i trained on} e_i φ_iᵀ                                                  (k × h equations)

holds for L-BFGS, Adam with L2 in its loss, coordinate descent and a closed form alike. W is published, so e_i, and with
it the whole term c_i = e_i φ_iᵀ, is known for every record of a pool. The unknown numbers are z_i = 1/(λn) for training
records and 0 for others, so they are found by non-negative least squares over the pool:

    minimise ‖W − Σ_i z_i c_i‖²  over z ≥ 0        (inner products (e_i·e_j)(φ_i·φ_j): an m × m problem)

The bias has no part in it: most penalties leave it out. A known start W(0) is one more column of any factor.

Training records that are missing from the pool leave Σ_missing e_j φ_jᵀ / (λn): noise with the covariance of
embeddings, and so do steps of a batch around the resting point. Distances are therefore whitened, by Σ + εt I, with Σ
the pool's covariance and t its mean variance. Everybody in the pool enters Σ alike, so ranks among records that were
not trained on stay exact. Directions in which the pool does not vary tell nothing of it, and are left out.

*A head that did not come to rest* is a sum of steps, and two more things may be so:

- its steps were Adam's, each weight's divided by the size of its own gradient: W(T) ∘ S is the sum then, with
  S_kj² the mean of (e_ik φ_ij)² over the pool;
- the residuals on the way lay halfway between those of the start and of the end.

Nobody says which. Of these four views, and of the ridges ε, the one is taken under which the weights are likeliest,

    ℓ = −(N/2) log(what is left, whitened) + (k/2) log det (Σ + εtI)⁻¹ + Σ log S,        N = k · dimensions.

The score of a record is the contribution that it would get with all others as they are, in the norm of its own term:
|c_i| z_i where z_i > 0, and how far from any contribution it is, a negative number, elsewhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.probes.residuals import residuals

RIDGE = 0.1
"""ε where there are too few equations to choose it, and where the choice begins."""
RIDGES = (1.0, 0.01, 0.001)
ENOUGH = 2.0
"""Equations per record, from which the weights choose the view and the ridge."""
MOST_CHOOSING = 1000
"""Records of the pool that choose; all are ranked."""
VARYING = 1e-6
"""Of the largest variance, and of the largest entry: what varies less is the same for all records."""
JITTER = 1e-8
"""Added to a Gram matrix of unit diagonal: copies of a record leave it singular."""
NEGLIGIBLE = 1e-12
"""Of the longest term: a record that the head fits to rounding pulls at nothing."""
PATIENCE = 30
"""Steps per record, after which scipy gives up."""
MOST_RECORDS = 3000
"""Of a pool: the time grows like their cube, 14 s for so many on one core."""


@dataclass(frozen=True)
class View:
    """What is taken to be so of a training: steps of Adam's, residuals halfway from the start, and ε."""

    adaptive: bool = False
    halfway: bool = False
    ridge: float = RIDGE


@dataclass(frozen=True, eq=False, repr=False)
class Stationarity:
    """One score per record, the share of the weights, whitened, that the records explain, and the view of it."""

    score: Float[Tensor, " m"]
    explained: float
    view: View = View()


@dataclass(frozen=True, eq=False, repr=False)
class _Pulls:
    """`pull` at the end and `halfway` from the start, for all records."""

    embeddings: Float[Tensor, "m h"]
    pull: Float[Tensor, "m k"]
    halfway: Float[Tensor, "m k"]

    def part(self, chosen: Tensor) -> "_Pulls":
        return _Pulls(self.embeddings[chosen], self.pull[chosen], self.halfway[chosen])


@dataclass(frozen=True, eq=False)
class _Fit:
    found: Stationarity
    likelihood: float


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
    start = torch.zeros_like(weights) if initial is None else initial.double()
    ends = [residuals(pool @ end.T, labels, loss) for end in (weights, start)]
    if constant:
        pool, weights, start = pool[:, :-1], weights[:, :-1], start[:, :-1]
    varying = (pool - pool.mean(dim=0)).abs().amax(dim=0) > VARYING * pool.abs().max()
    if not bool(varying.any()):
        return Stationarity(torch.zeros(len(pool), dtype=torch.float64), 0.0)
    seen = _Pulls(pool[:, varying], ends[0], (ends[0] + ends[1]) / 2)
    weights, start = weights[:, varying], start[:, varying]
    return _fit(seen, weights, start, _likeliest(seen, weights, start)).found


def _likeliest(pool: _Pulls, weights: Float[Tensor, "k h"], start: Float[Tensor, "k h"]) -> View:
    """The view first, then the ridge."""
    dice = torch.Generator().manual_seed(0)
    some = pool.part(torch.randperm(len(pool.pull), generator=dice)[:MOST_CHOOSING])
    if len(weights) * min(some.embeddings.shape[1], len(some.pull) - 1) < ENOUGH * len(some.pull):
        return View()

    def best(views: Sequence[View]) -> View:
        return max(views, key=lambda view: _fit(some, weights, start, view).likelihood)

    view = best([View(adaptive, halfway) for adaptive in (False, True) for halfway in (False, True)])
    return best([view, *(replace(view, ridge=ridge) for ridge in RIDGES)])


def _fit(pool: _Pulls, weights: Float[Tensor, "k h"], start: Float[Tensor, "k h"], view: View) -> _Fit:
    pull = pool.halfway if view.halfway else pool.pull
    sizes = torch.ones_like(weights)
    if view.adaptive:
        sizes = (pull.square().T @ pool.embeddings.square() / len(pull)).sqrt()
        sizes = (sizes / sizes.max()).clamp_min(NEGLIGIBLE)
    axes, inverse = _whitening(pool.embeddings, view.ridge)
    rows, held, first = pool.embeddings @ axes, (weights * sizes) @ axes, (start * sizes) @ axes
    white, target = rows * inverse, held * inverse
    gram = (pull @ pull.T) * (white @ rows.T)
    moments = ((pull @ target) * rows).sum(dim=1)
    total = float((target * held).sum())
    size = float((first * inverse * first).sum())
    if size > 0:  # a column of any factor: it is projected out of everything
        along, own = ((pull @ first) * white).sum(dim=1), float((target * first).sum())
        gram, moments = gram - along[:, None] * along / size, moments - along * own / size
        total -= own * own / size
    found = replace(_least_squares(gram, moments, total), view=view)
    left = max(total * (1 - found.explained), math.ulp(1.0) * total, math.ulp(0.0))
    likelihood = len(weights) * (float(inverse.log().sum()) - len(inverse) * math.log(left)) / 2
    return _Fit(found, likelihood + float(sizes.log().sum()))


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


def _whitening(pool: Float[Tensor, "m h"], ridge: float) -> tuple[Float[Tensor, "h q"], Float[Tensor, " q"]]:
    """Axes in which the pool varies, and (Σ + εt I)⁻¹ along them, in units of 1/t."""
    centred = pool - pool.mean(dim=0)
    covariance = centred.T @ centred / len(pool)
    variances, axes = torch.linalg.eigh(covariance / covariance.diagonal().mean())
    kept = variances > VARYING * variances[-1]
    return axes[:, kept], 1 / (variances[kept] + ridge)
