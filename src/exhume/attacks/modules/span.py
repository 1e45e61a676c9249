"""The projected loss of Eq. 11 for features of any network.

For candidates X̂ (m × d) with features G = g(X̂) (m × p) and weights Δ (k × p):

    A = (G Gᵀ)⁺ G Δᵀ,      R = Δ − Aᵀ G,      L(X̂) = ||R||² / ||Δ||²,
    ∂L/∂x̂_i = −(2 / ||Δ||²) J_iᵀ (A R)_i          (envelope theorem: A is where ||R||² is least)

with J_i the Jacobian of g at x̂_i. A fit is one evaluation of g, a gradient one backward sweep: a *pass* each.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.span import PassCounter, independent_outputs, invert_gram, to_unit_scale
from exhume.features.module import Linearisation, ModuleFeatures


@dataclass(frozen=True, eq=False)
class GeneralFit:
    """The weights projected on the span of the candidates' features."""

    candidates: Float[Tensor, "m d"]
    features: Float[Tensor, "m p"]
    gram_inverse: Float[Tensor, "m m"]
    coefficients: Float[Tensor, "m k"]
    residual: Float[Tensor, "k p"]
    loss: float


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

    def fit(self, candidates: Float[Tensor, "m d"]) -> GeneralFit:
        """One pass."""
        return self._project(candidates, self.features(candidates))

    def fit_with_gradient(self, candidates: Float[Tensor, "m d"]) -> tuple[GeneralFit, Float[Tensor, "m d"]]:
        """The fit and ∂L/∂X̂. Two passes."""
        point = self.features.linearise(candidates)
        fit = self._project(candidates, point.values)
        return fit, self.gradient(fit, point)

    def gradient(self, fit: GeneralFit, point: Linearisation) -> Float[Tensor, "m d"]:
        """One pass."""
        self.counter.total += 1
        return point.pull(fit.coefficients.to(fit.residual.dtype) @ fit.residual) * (-2 / self.energy)

    def predict_loss(self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"]) -> float:
        """||Δ − AᵀG||² / ||Δ||² for coefficients that were found elsewhere, on other coordinates. One pass."""
        self.counter.total += 1
        explained = (coefficients / self.scale).to(candidates.dtype).T @ self.features(candidates)
        return float((self.weights - explained).double().square().sum()) / self.energy

    def restricted(self, fit: GeneralFit, kept: list[int]) -> GeneralFit:
        """The fit of some of the candidates alone, from features that are known already. No pass."""
        self.counter.total -= 1
        return self._project(fit.candidates[kept], fit.features[kept])

    def _project(self, candidates: Float[Tensor, "m d"], features: Float[Tensor, "m p"]) -> GeneralFit:
        self.counter.total += 1
        exact, weights = features.double(), self.weights.double()
        inverse = invert_gram(exact @ exact.T)
        coefficients = inverse @ (exact @ weights.T)
        residual = weights - coefficients.T @ exact
        correction = inverse @ (exact @ residual.T)  # the inverse is rounded
        coefficients, residual = coefficients + correction, residual - correction.T @ exact
        loss = float(residual.square().sum()) / self.energy
        return GeneralFit(candidates, features, inverse, coefficients, residual.to(features.dtype), loss)


def removal_costs(loss: GeneralSpanLoss, fit: GeneralFit) -> Float[Tensor, " m"]:
    """By how much L rises if a candidate is removed and the others' coefficients are fitted again."""
    diagonal = fit.gram_inverse.diagonal().clamp_min(torch.finfo(torch.float64).tiny)
    return fit.coefficients.square().sum(dim=1) / diagonal / loss.energy


def cross_validated(loss: GeneralSpanLoss, fit: GeneralFit) -> float:
    """L / (1 − m (d − 1 + k) / (k p))²: comparable between numbers of candidates."""
    m, d = fit.candidates.shape
    unknown = m * (d - 1 + loss.outputs)
    return fit.loss / max(1e-3, 1 - unknown / loss.equations) ** 2
