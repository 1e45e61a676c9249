"""The projected loss with a Gaussian prior on the samples: maximum a posteriori, with the coefficients eliminated.

Weights θ (k × p) of unit mean square, candidates X (m × r, coordinates of x = U z), features F = φ(X (VU)ᵀ + b):

    J(X) = min_A  ||θ − AᵀF||² + Σ_i ||A_i||² q_i,    q_i = Σ_j λ_j x_ij²,    λ_j = weight / variance_j.

The prior is on A_i x_i, what a sample contributes, and not on x_i alone. For a homogeneous φ only that product can be
known from the weights; and were x_i penalised alone, J would be lowest at candidates that nearly coincide at the
frequency of largest variance, with huge coefficients of opposite signs. In this form the prior is m r k further linear
equations, 0 = A_io √λ_j x_ij, so everything known of least squares holds for the enlarged system: A follows from
(F Fᵀ + diag q) A = F θᵀ, and the Gauss-Newton model with A eliminated is

    ||R − P_⊥ Y(dX)||²,    Y = (Σ_i A_io φ'(z_ik) v_k·dx_i,  A_io √λ_j dx_ij),

with P_⊥ across the enlarged features (F, √λ_j x_ij). λ = 0 is the loss of `single_layer/span.py`; for a linear φ this
is ridge regression.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.projection import Projection, invert_gram
from exhume.attacks.foundation.retraction import tangent
from exhume.features.ridge import RidgeFeatures


@dataclass(frozen=True, eq=False, repr=False)
class PriorFit(Projection):
    """`objective` is J and `loss` its first term, both over ||θ||². `gram_inverse` is (F Fᵀ + diag q)⁻¹, so that what
    a removal costs is by how much J rises."""

    preactivations: Float[Tensor, "m p"]
    objective: float


@dataclass(frozen=True, eq=False, repr=False)
class PriorModel:
    """J linearised at a fit: slopes φ'(Z), the metric (A Aᵀ) ∘ (D Dᵀ) · E[v_j²], and the negative half-gradient."""

    fit: PriorFit
    slopes: Float[Tensor, "m p"]
    metric: Float[Tensor, "m m"]
    descent: Float[Tensor, "m r"]


class PriorLoss:
    """J for rows that are held in memory. `sweeps` counts products with them."""

    def __init__(self, features: RidgeFeatures, weights: Float[Tensor, "k p"], penalties: Float[Tensor, " r"]) -> None:
        self.features, self.weights = features, weights
        self.rows = features.rows.block(0, features.p)
        self.penalties = penalties.to(weights)
        self.energy = float(weights.double().square().sum())
        self.mean_square = float(self.rows[:4096].double().square().mean())
        self.sweeps = 0

    def fit(self, candidates: Float[Tensor, "m r"]) -> PriorFit:
        """The coefficients and J. One sweep."""
        with torch.no_grad():
            preactivations = candidates @ self.rows.T
            if self.features.bias is not None:
                preactivations += self.features.bias.to(preactivations)
            features = self.features.activation.value(preactivations)
        self.sweeps += 1
        penalty = (candidates.double().square() * self.penalties.double()).sum(dim=1)
        inverse = invert_gram((features @ features.T).double() + torch.diag(penalty))
        coefficients = inverse @ (features @ self.weights.T).double()
        residual = self.weights - coefficients.to(features.dtype).T @ features
        loss = float(residual.double().square().sum()) / self.energy
        cost = float((coefficients.square().sum(dim=1) * penalty).sum()) / self.energy
        return PriorFit(candidates, features, inverse, coefficients, residual, loss, preactivations, loss + cost)

    def linearise(self, fit: PriorFit) -> PriorModel:
        """One sweep."""
        with torch.no_grad():
            slopes = self.features.activation.derivative(fit.preactivations)
        weights = fit.coefficients.to(slopes.dtype)
        pulled = (slopes * (weights @ fit.residual)) @ self.rows
        self.sweeps += 1
        descent = pulled - weights.square().sum(dim=1)[:, None] * self.penalties * fit.candidates
        overlap = (slopes @ slopes.T).double() * self.mean_square
        metric = (fit.coefficients @ fit.coefficients.T) * overlap
        return PriorModel(fit, slopes, metric, tangent(descent, fit.candidates))

    def curve(self, model: PriorModel, directions: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        """The Gauss-Newton matrix times directions. Two sweeps."""
        fit, penalised = model.fit, self.penalties * model.fit.candidates
        weights = fit.coefficients.to(directions.dtype)
        moved = weights.T @ (directions @ self.rows.T).mul_(model.slopes)
        onto = fit.features @ moved.T + weights * (penalised * directions).sum(dim=1)[:, None]
        change = (fit.gram_inverse @ onto.double()).to(directions.dtype)
        left = moved - change.T @ fit.features
        pulled = (model.slopes * (weights @ left)) @ self.rows
        self.sweeps += 2
        kept = weights.square().sum(dim=1)[:, None] * self.penalties * directions
        return tangent(pulled + kept - (weights * change).sum(dim=1)[:, None] * penalised, fit.candidates)

    def predict_loss(self, fit: PriorFit, rows: RidgeFeatures, weights: Float[Tensor, "k h"]) -> float:
        """||θ_h − AᵀF_h||² / ||θ_h||² on other rows."""
        with torch.no_grad():
            features = rows(fit.candidates)
        missed = weights - fit.coefficients.to(features.dtype).T @ features
        return float(missed.double().square().sum()) / float(weights.double().square().sum())
