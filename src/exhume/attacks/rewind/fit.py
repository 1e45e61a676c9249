"""Candidates and error signals that explain the change of the head, along the way that they themselves imply.

    ΔW₂_k ≈ Σ_i a_i f_i(k),     f_i(k) = ∫ φ(w̃_k(s) · x̃_i) ds

weighed by u_k per unit, with a_i eliminated. A unit that is explained worse than most counts less: with residuals r_k
and twice their median for a scale σ, u_k² = 1 / (1 + r_k² / σ²), the weights of a Cauchy likelihood.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.projection import invert_gram
from exhume.attacks.rewind.path import Way

SCALE = 2.0  # of the weights, in medians
WALKS = 2  # back, between two steps
LEAST_DAMPING = 1e-4
FIRST_DAMPING = 1e-2
SHARE_OF_MEAN = 1e-2  # of the mean curvature, added to each one's own: a candidate that explains nothing has none


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """Candidates on the unit sphere, the way they imply, and what they leave of the head's change."""

    candidates: Float[Tensor, "m c"]
    way: Way
    weights: Float[Tensor, " h"]
    features: Float[Tensor, "m h"]
    gram_inverse: Float[Tensor, "m m"]
    coefficients: Float[Tensor, "m q"]
    residual: Float[Tensor, "h q"]

    @property
    def left(self) -> float:
        """The weighed squares that are left."""
        return float((self.residual * self.weights[:, None]).square().sum())

    @property
    def typical(self) -> float:
        """What is left of a unit in the middle, over the root mean square of the change: outliers do not move it."""
        change = self.way.layer.change
        size = change.norm(dim=1).square().mean().sqrt()
        return float(self.residual.norm(dim=1).median() / size)

    @property
    def removal_costs(self) -> Float[Tensor, " m"]:
        """By how much `left` would rise without each candidate, over `left`."""
        diagonal = self.gram_inverse.diagonal().clamp_min(torch.finfo(self.features.dtype).tiny)
        return self.coefficients.square().sum(dim=1) / diagonal / max(self.left, torch.finfo(torch.float32).tiny)


def fitted(candidates: Float[Tensor, "m c"], way: Way, weights: Float[Tensor, " h"]) -> Fit:
    """With the best error signals."""
    features, change = way.features(candidates), way.layer.change
    weighed = features * weights
    gram_inverse = invert_gram((weighed @ weighed.T).double())
    wanted = weighed.double() @ (change * weights[:, None]).double()
    coefficients = (gram_inverse @ wanted).to(features)
    residual = change - features.T @ coefficients
    return Fit(candidates, way, weights, features, gram_inverse.to(features), coefficients, residual)


def reweighed(fit: Fit) -> Fit:
    """With weights for what is left now."""
    left = fit.residual.norm(dim=1)
    scale = SCALE * float(left[left > 0].median()) if bool((left > 0).any()) else 1.0
    return fitted(fit.candidates, fit.way, 1 / torch.sqrt(1 + (left / scale).square()))


def rewound(fit: Fit) -> Fit:
    """Along the way that the candidates imply by now."""
    for _ in range(WALKS):
        fit = fitted(fit.candidates, fit.way.walked_back(fit.candidates, fit.coefficients), fit.weights)
    return reweighed(fit)


def stepped(fit: Fit, damping: float) -> tuple[Fit, float]:
    """One Levenberg-Marquardt step along a way that stays as it is, if it explains more; and the next damping.

    With P the projection off the weighed features, the normal equations are those of P J. Moving x̃_i by δ_i changes
    unit k of output c by A_ic g_ik · δ_i, with g the gradients of the features.
    """
    (m, c), h = fit.candidates.shape, len(fit.weights)
    basis = torch.linalg.qr((fit.features * fit.weights).T).Q
    weighed = fit.way.gradients(fit.candidates) * fit.weights[:, None]
    normal, wanted = weighed.new_zeros(m * c, m * c), weighed.new_zeros(m * c)
    for output in range(fit.coefficients.shape[1]):
        jacobian = (weighed * fit.coefficients[:, output, None, None]).permute(1, 0, 2).reshape(h, m * c)
        jacobian = jacobian - basis @ (basis.T @ jacobian)
        normal.addmm_(jacobian.T, jacobian)
        wanted += jacobian.T @ (fit.residual[:, output] * fit.weights)
    diagonal = normal.diagonal().clone()
    normal.diagonal().add_(damping * (diagonal + SHARE_OF_MEAN * diagonal.mean()))
    factor, failed = torch.linalg.cholesky_ex(normal)
    if int(failed):
        return fit, 10 * damping
    change = torch.cholesky_solve(wanted[:, None], factor).reshape(m, c)
    trial = fitted(torch.nn.functional.normalize(fit.candidates + change, dim=1), fit.way, fit.weights)
    return (trial, max(damping / 3, LEAST_DAMPING)) if trial.left < fit.left else (fit, 10 * damping)


def pruned(fit: Fit, least: float) -> Fit:
    """Without the candidates that cost less to remove than this share of what is left at first, the cheapest first."""
    most = least * fit.left
    while len(fit.candidates) > 1:
        costs = fit.removal_costs * fit.left
        cheapest = int(costs.argmin())
        if float(costs[cheapest]) > most:
            break
        kept = torch.arange(len(fit.candidates), device=fit.candidates.device) != cheapest
        fit = fitted(fit.candidates[kept], fit.way, fit.weights)
    return fit
