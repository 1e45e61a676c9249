"""How far each coordinate of each candidate may be off: the posterior variance, from the actual Jacobian.

With noise of variance H on each equation and a prior of variance s_j² on coordinate j,

    C = (JᵀPJ / H + I ⊗ diag(1 / s²))⁻¹,

J and P as in `loss.py`, without the prior's own equations. A direction that the rows do not see keeps its prior
variance. What is wanted is the diagonal of C: from its factors up to `DENSE` unknowns; beyond, the mean of z ∘ (C z)
over random signs z, by conjugate gradients (`foundation/probing.py`). The preconditioner is C with the mean curvature M
in place of JᵀPJ: for rows that are as good as random it is C but for sampling. Where products do not settle nothing is
known but the prior.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation import probing
from exhume.attacks.foundation.retraction import tangent
from exhume.attacks.foundation.unknowns import DENSE, TINY, unknown_directions
from exhume.attacks.prior.loss import PriorLoss, PriorModel

PROBES = 4


def spread(loss: PriorLoss, model: PriorModel, noise: float, variance: Float[Tensor, " r"]) -> Float[Tensor, "m r"]:
    """The diagonal of C, for a loss without penalties."""
    known = _dense if model.descent.numel() <= DENSE else _probed
    return known(loss, model, noise, variance.double().to(model.metric.device))


def _dense(loss: PriorLoss, model: PriorModel, noise: float, variance: Float[Tensor, " r"]) -> Float[Tensor, "m r"]:
    bases = unknown_directions(model.fit.candidates.double(), False)
    m, _, u = bases.shape
    columns = []
    for i in range(m):
        for a in range(u):
            way = torch.zeros_like(model.descent)
            way[i] = bases[i, :, a].to(way)
            columns.append(torch.einsum("jru,jr->ju", bases, loss.curve(model, way).double()).reshape(-1))
    curve = torch.stack(columns) / noise
    prior = torch.einsum("iru,r,irv->iuv", bases, 1 / variance, bases)
    precision = (curve + curve.T) / 2 + torch.block_diag(*prior)
    scale = precision.diagonal().clamp_min(TINY).rsqrt()
    values, vectors = torch.linalg.eigh(precision * scale[:, None] * scale)
    factor = vectors * values.clamp_min(torch.finfo(values.dtype).eps).rsqrt() * scale[:, None]
    return torch.einsum("iru,iuc->irc", bases, factor.reshape(m, u, -1)).square().sum(dim=2)


def _probed(loss: PriorLoss, model: PriorModel, noise: float, variance: Float[Tensor, " r"]) -> Float[Tensor, "m r"]:
    candidates, precision = model.fit.candidates, (1 / variance).to(model.descent)
    values, vectors = torch.linalg.eigh(model.metric.double())
    alike = 1 / (values.clamp_min(0)[:, None] / noise + 1 / variance)  # of eigenvector l, coordinate j
    turn, weight = vectors.to(candidates), alike.to(candidates)

    def allowed(directions: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return tangent(directions, candidates)

    def curve(directions: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return loss.curve(model, directions) / noise + allowed(precision * directions)

    def condition(directions: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return allowed(turn @ (weight * (turn.T @ directions)))

    stream = torch.Generator().manual_seed(0)
    found = torch.zeros_like(candidates, dtype=torch.float64)
    for _ in range(PROBES):
        signs = allowed(torch.randint(0, 2, candidates.shape, generator=stream).to(candidates) * 2 - 1)
        solved, settled = probing.solve(curve, signs, condition)
        if not settled:
            return variance.expand_as(found).clone()
        found += (signs * solved).double() / PROBES
    return found.clamp_min(0)
