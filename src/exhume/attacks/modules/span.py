"""The projected loss of Eq. 11 for features of any network.

For candidates X̂ (m × d) with features G = g(X̂) (m × p) and weights Δ (k × p):

    A = (G Gᵀ)⁺ G Δᵀ,      R = Δ − Aᵀ G,      L(X̂) = ||R||² / ||Δ||²,
    ∂L/∂x̂_i = −(2 / ||Δ||²) J_iᵀ (A R)_i          (envelope theorem: A is where ||R||² is least)

with J_i the Jacobian of g at x̂_i. A fit is one evaluation of g, a gradient one backward sweep: a *pass* each.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.foundation.projection import (
    Projection,
    cross_validated,
    independent_outputs,
    invert_gram,
    to_unit_scale,
)
from exhume.features.module import Linearisation, ModuleFeatures


class GeneralSpanLoss:
    """L and its gradient. The weights are divided by their root mean square; `scale` undoes it for coefficients."""

    def __init__(
        self,
        features: ModuleFeatures,
        weights: Float[Tensor, "k p"],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.features = features
        self.published = weights
        self.weights, self.scale = to_unit_scale(weights, dtype, device)
        self.energy = float(self.weights.double().square().sum())
        self.outputs = independent_outputs(self.weights)
        self.counter = PassCounter(features.p)

    @property
    def equations(self) -> int:
        """What the unknowns are to be counted against: p for each independent output."""
        return self.outputs * self.features.p

    @property
    def passes(self) -> float:
        """Evaluations of g and backward sweeps so far, each for all candidates."""
        return self.counter.total

    def to(self, dtype: torch.dtype) -> "GeneralSpanLoss":
        """The same loss in another precision, from the published weights."""
        if dtype == self.weights.dtype:
            return self
        other = GeneralSpanLoss(self.features, self.published, dtype, self.weights.device)
        other.counter = self.counter
        return other

    def fit(self, candidates: Float[Tensor, "m d"]) -> Projection:
        """One pass."""
        return self._project(candidates, self.features(candidates))

    def fit_with_gradient(self, candidates: Float[Tensor, "m d"]) -> tuple[Projection, Float[Tensor, "m d"]]:
        """The fit and ∂L/∂X̂. Two passes."""
        point = self.features.linearise(candidates)
        fit = self._project(candidates, point.values)
        return fit, self.gradient(fit, point)

    def gradient(self, fit: Projection, point: Linearisation) -> Float[Tensor, "m d"]:
        """One pass."""
        self.counter.total += 1
        return point.pull(fit.coefficients.to(fit.residual.dtype) @ fit.residual) * (-2 / self.energy)

    def cross_validated(self, fit: Projection) -> float:
        """The loss, comparable between numbers of candidates: each has d − 1 + k unknowns."""
        m, d = fit.candidates.shape
        return cross_validated(fit.loss, m * (d - 1 + self.outputs), self.equations)

    def predict_loss(self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"]) -> float:
        """||Δ − AᵀG||² / ||Δ||² for coefficients that were found elsewhere, on other coordinates. One pass."""
        self.counter.total += 1
        explained = (coefficients / self.scale).to(candidates.dtype).T @ self.features(candidates)
        return float((self.weights - explained).double().square().sum()) / self.energy

    def restricted(self, fit: Projection, kept: list[int]) -> Projection:
        """The fit of some of the candidates alone, from features that are known already. No pass."""
        self.counter.total -= 1
        return self._project(fit.candidates[kept], fit.features[kept])

    def _project(self, candidates: Float[Tensor, "m d"], features: Float[Tensor, "m p"]) -> Projection:
        self.counter.total += 1
        exact, weights = features.double(), self.weights.double()
        inverse = invert_gram(exact @ exact.T)
        coefficients = inverse @ (exact @ weights.T)
        residual = weights - coefficients.T @ exact
        correction = inverse @ (exact @ residual.T)  # the inverse is rounded
        coefficients, residual = coefficients + correction, residual - correction.T @ exact
        loss = float(residual.square().sum()) / self.energy
        return Projection(candidates, features, inverse, coefficients, residual.to(features.dtype), loss)
