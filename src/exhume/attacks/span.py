"""The projected loss of Eq. 11: how much of the weights lies outside the span of the candidates' features.

For candidates X̂ (m × d) with features F = φ(X̂Vᵀ + b) (m × p) and weights θ (k × p):

    α = (F Fᵀ)⁺ F θᵀ          m × k coefficients
    r = θ − αᵀ F              residual
    L(X̂) = ||P_⊥ θ||² / ||θ||² = ||r||² / ||θ||²

α minimises ||r||², so by the envelope theorem L may be differentiated as if α were fixed:

    ∂L/∂x̂_i = −(2 / ||θ||²) Σ_k φ'(z_ik) (α r)_ik v_k.

One evaluation is one pass over V, one gradient another. Only m × p numbers are kept, never p × d.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import blocks
from exhume.observation import Observation


@dataclass(frozen=True, eq=False)
class Fit:
    """The weights projected on the span of the candidates' features."""

    preactivations: Float[Tensor, "m p"]
    gram: Float[Tensor, "m m"]
    coefficients: Float[Tensor, "m k"]
    residual: Float[Tensor, "k p"]
    loss: float


class SpanLoss:
    """L and its gradient for one observation, or for a part of its rows.

    The weights are divided by their root mean square first: L does not change, and no product over- or underflows
    whatever the scale of the published weights. `scale` undoes it for the coefficients.
    """

    def __init__(
        self,
        features: RidgeFeatures,
        weights: Float[Tensor, "k p"],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        largest = float(weights.abs().max()) if weights.numel() else 0.0
        if largest == 0:
            raise ExhumeError("expected weights that differ from zero, found all of them zero: nothing was learned")
        scaled = weights.double() / largest
        root_mean_square = float(scaled.square().mean().sqrt())
        self.features = features
        self.scale = largest * root_mean_square
        self.weights = (scaled / root_mean_square).to(dtype=dtype, device=device)
        self.energy = float(self.weights.double().square().sum())
        self.passes = 0

    @classmethod
    def of(
        cls, observation: Observation, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> "SpanLoss":
        return cls(observation.features, observation.weights, dtype, device)

    def fit(self, candidates: Float[Tensor, "m d"]) -> Fit:
        """Projects the weights on the span of the candidates' features. One pass."""
        m, k = len(candidates), len(self.weights)
        preactivations = candidates.new_empty(m, self.features.p)
        gram = torch.zeros(m, m, dtype=torch.float64, device=candidates.device)
        moments = torch.zeros(m, k, dtype=torch.float64, device=candidates.device)
        for block, values in self.features.preactivation_blocks(candidates):
            preactivations[:, block] = values
            features = self.features.activation.value(values)
            gram += features @ features.T  # summed in float64: a block's rounding does not grow with p
            moments += features @ self.weights[:, block].T
        self.passes += 1
        coefficients = solve_gram(gram, moments, features.dtype)
        residual = self._residual(preactivations, coefficients)
        loss = float(residual.double().square().sum()) / self.energy
        return Fit(preactivations, gram, coefficients, residual, loss)

    def gradient(self, fit: Fit, inactive_slope: float = 0.0) -> Float[Tensor, "m d"]:
        """∂L/∂X̂. One pass. `inactive_slope` replaces a vanishing φ' by a small slope (a surrogate, off by default)."""
        coefficients = fit.coefficients.to(fit.residual.dtype)

        def weigh(block: slice) -> Float[Tensor, "m rows"]:
            slopes = self.features.activation.derivative(fit.preactivations[:, block])
            if inactive_slope:
                slopes = slopes.clamp_min(inactive_slope)
            return slopes * (coefficients @ fit.residual[:, block])

        self.passes += 1
        pulled = self.features.pull_back(weigh, len(coefficients), fit.residual.dtype, fit.residual.device)
        return pulled * (-2 / self.energy)

    def predict_loss(self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"]) -> float:
        """||θ − αᵀF||² / ||θ||² for coefficients that were found elsewhere, on other rows. One pass."""
        missed = 0.0
        scaled = (coefficients / self.scale).to(candidates.dtype)
        for block, features in self.features.feature_blocks(candidates):
            missed += float((self.weights[:, block] - scaled.T @ features).double().square().sum())
        self.passes += 1
        return missed / self.energy

    def _residual(
        self, preactivations: Float[Tensor, "m p"], coefficients: Float[Tensor, "m k"]
    ) -> Float[Tensor, "k p"]:
        residual = self.weights.clone()
        negative = -coefficients.to(residual.dtype).T
        for block in blocks(self.features.rows):
            residual[:, block] += negative @ self.features.activation.value(preactivations[:, block])
        return residual


def solve_gram(
    gram: Float[Tensor, "m m"], moments: Float[Tensor, "m k"], precision: torch.dtype
) -> Float[Tensor, "m k"]:
    """The least-norm solution of (F Fᵀ) α = F θᵀ, also where candidates coincide or m exceeds p.

    Candidates are scaled to unit feature norm, and directions whose eigenvalue drowns in the rounding of a Gram matrix
    of this precision are left out: they would otherwise come back as huge coefficients of opposite signs.
    """
    norms = gram.diagonal().clamp_min(0).sqrt()
    inverse = torch.where(norms > 0, 1 / norms.clamp_min(torch.finfo(gram.dtype).tiny), torch.zeros_like(norms))
    values, vectors = torch.linalg.eigh(gram * inverse[:, None] * inverse)
    kept = values > len(gram) * torch.finfo(precision).eps * values[-1:].clamp_min(0)
    reciprocal = torch.where(kept, 1 / torch.where(kept, values, 1.0), torch.zeros_like(values))
    return inverse[:, None] * (vectors @ (reciprocal[:, None] * (vectors.T @ (inverse[:, None] * moments))))
