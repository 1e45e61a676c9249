"""The Gauss-Newton model of the projected loss, and its solution by conjugate gradients.

The residual r = P_⊥ θ moves with the candidates as dr = −P_⊥ y(dX), y(dX)_ok = Σ_i α_io φ'(z_ik) v_k·dx_i (the variable
projection of Kaufman: the coefficients follow by themselves). Up to a factor, the model is

    ||r − P_⊥ y(dX)||²  with   G = Jᵀr (negative half-gradient),   H = Jᵀ P_⊥ J.

For isotropic rows v, E[H] = M ⊗ I with M = (α αᵀ) ∘ (D Dᵀ) · E[v_j²], D = φ'(Z): an m × m matrix that serves as the
metric of the damping and as preconditioner. At finite p the spectrum of M⁻¹H spreads like Marchenko-Pastur's law with
q = m d / p, so k products reduce the error by about (√q)^k. Each product is a forward and a backward pass over V.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import Solution, conjugate_gradients
from exhume.attacks.foundation.levenberg import Move
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.features import memory

# shares of the mean curvature added where a candidate has none of its own (a coefficient near zero)
_FLOOR = 1e-6
AT_KINK = 1e-4  # of the root mean square of a candidate's preactivations


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """The loss linearised at a fit. `energy` turns squares of the residual into units of L."""

    fit: Fit
    slopes: Float[Tensor, "m p"]
    metric: Float[Tensor, "m m"]
    descent: Float[Tensor, "m d"]
    energy: float

    @property
    def curvatures(self) -> Float[Tensor, " m"]:
        diagonal = self.metric.diagonal()
        return diagonal + _FLOOR * diagonal.mean() + torch.finfo(torch.float64).tiny

    def damped_metric_inverse(self, damping: float) -> Float[Tensor, "m m"]:
        damped = self.metric + torch.diag(damping * self.curvatures)
        scale = damped.diagonal().rsqrt()
        eye = torch.eye(len(damped), dtype=damped.dtype, device=damped.device)
        factor = torch.linalg.cholesky(damped * scale[:, None] * scale + 1e-10 * eye)
        return torch.cholesky_inverse(factor) * scale[:, None] * scale


def linearise(loss: SpanLoss, fit: Fit) -> Model:
    """Slopes, metric and descent direction at a fit. One pass."""
    slopes = memory.empty(len(fit.preactivations), loss.features.p, fit.preactivations)
    weights = fit.coefficients.to(slopes.dtype)

    def weigh(block: slice) -> Float[Tensor, "m rows"]:
        slopes[:, block] = steepness = loss.features.activation.derivative(fit.preactivations[:, block])
        return steepness.mul_(weights @ fit.residual[:, block])

    pulled = loss.pull_back(weigh, fit.candidates)
    descent = loss.allowed(pulled, fit.candidates)
    return Model(fit, slopes, _metric(loss, fit, slopes), descent, loss.energy)


def away_from_kinks(loss: SpanLoss, preactivations: Float[Tensor, "m p"]) -> Float[Tensor, " p"]:
    """1 for rows that have a derivative at every candidate, 0 for others. No pass.

    Two candidates that share a sample may be told apart by nothing but rows at whose kink one of them came to rest:
    there rounding chooses the slope.
    """
    if not loss.features.activation.kinked:
        return torch.ones_like(preactivations[0])
    squares = loss.ranks.sum(preactivations.square().sum(dim=1, dtype=torch.float64))
    at_kink = AT_KINK * (squares / loss.ranks.total(float(loss.features.p))).sqrt().to(preactivations)
    return (preactivations.abs() > at_kink[:, None]).all(dim=0).to(preactivations)


def _metric(loss: SpanLoss, fit: Fit, slopes: Float[Tensor, "m p"]) -> Float[Tensor, "m m"]:
    overlap = loss.ranks.sum((slopes @ slopes.T).double())
    return (fit.coefficients @ fit.coefficients.T) * overlap * mean_square(loss)


def curve(loss: SpanLoss, model: Model, directions: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """H times directions. Two passes."""
    weights = model.fit.coefficients.to(directions.dtype)
    moved = weights.T @ loss.push_forward(directions).mul_(model.slopes)
    moved, _ = loss.project(model.fit, moved)
    pulled = loss.pull_back(lambda block: model.slopes[:, block] * (weights @ moved[:, block]), directions)
    return loss.allowed(pulled, model.fit.candidates)


def newton_move(loss: SpanLoss, model: Model, damping: float, products: int, forcing: float) -> Move:
    """Truncated conjugate gradients on (H + damping · diag M) dX = G, preconditioned by M ⊗ I.

    Stops after `products` products, or when the preconditioned residual fell by `forcing`.
    """
    candidates, descent = model.fit.candidates, model.descent
    inverse = model.damped_metric_inverse(damping).to(descent.dtype)
    weight = (damping * model.curvatures).to(descent.dtype)[:, None]
    found = conjugate_gradients(
        lambda direction: curve(loss, model, direction) + weight * direction,
        descent,
        products,
        forcing**2,
        lambda left: loss.allowed(inverse @ left, candidates),
    )
    return damped_move(found, descent, weight, model.energy)


def damped_move(
    found: Solution[Tensor], descent: Float[Tensor, "m d"], weight: Float[Tensor, "m 1"], energy: float
) -> Move:
    """The step that was found for (H + W) dX = G, and by how much it lowers the model without the damping W."""
    quadratic = float((found.x * (descent - found.left)).sum() - (weight * found.x.square()).sum())
    return Move(found.x, (2 * float((descent * found.x).sum()) - quadratic) / energy)


def mean_square(loss: SpanLoss) -> float:
    """E[v_j²], from the first block of rows that are not all zero: a scale, no more."""
    rows, own = loss.features.rows, loss.ranks.share.count
    size = min(rows.block_rows, 4096)
    for start in range(0, loss.p, size):
        stop = min(start + size, loss.p)
        total = loss.ranks.total(float(rows.block(own(start), own(stop)).double().square().sum()))
        if total > 0:
            return total / ((stop - start) * rows.d)
    return 1.0
