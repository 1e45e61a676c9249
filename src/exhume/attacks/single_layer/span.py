"""The projected loss of Eq. 11: how much of the weights lies outside the span of the candidates' features.

For candidates X̂ (m × d) with features F = φ(X̂Vᵀ + b) (m × p) and weights θ (k × p):

    α = (F Fᵀ)⁺ F θᵀ          m × k coefficients
    r = θ − αᵀ F              residual
    L(X̂) = ||P_⊥ θ||² / ||θ||² = ||r||² / ||θ||²

α minimises ||r||², so by the envelope theorem L may be differentiated as if α were fixed:

    ∂L/∂x̂_i = −(2 / ||θ||²) Σ_k φ'(z_ik) (α r)_ik v_k.

One evaluation is one pass over V, one gradient another. Only m × p numbers are kept, never p × d.

With a *free affine part* (`affine.py`) the span is enlarged by the columns of W = [V, 1, |v|]: everywhere above,
F and θ are then replaced by their parts orthogonal to W.

Where several processes share an attack (`foundation/ranks.py`), each has its own rows of V and keeps the m × p numbers
of these alone; p in the matrices below is their number. F Fᵀ, F θᵀ, ||r||² and the gradient are sums over all rows.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.foundation.projection import (
    Projection,
    independent_outputs,
    invert_gram,
    to_unit_scale,
)
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.attacks.foundation.retraction import tangent, to_norm
from exhume.attacks.single_layer.affine import AffinePart
from exhume.features import memory
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import Rows, blocks

NEARLY_SINGULAR = 1e-4
EXACT_BELOW = 1e-8  # a loss that rounding in float32 begins to touch


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Projection):
    """`gram` is F Fᵀ (its part orthogonal to W where there is an affine part); `affine_overlap` is F W (WᵀW)⁻¹."""

    preactivations: Float[Tensor, "m p"]
    gram: Float[Tensor, "m m"]
    affine_overlap: Float[Tensor, "m c"] | None = None


class SpanLoss:
    """L and its gradient for one observation, or for a part of its rows.

    The weights are divided by their root mean square first: L does not change, and no product over- or underflows
    whatever the scale of the published weights. `scale` undoes it for the coefficients. `features` and `weights` are
    those of this rank's own rows, `p` counts the rows of all ranks. `free_norms`: the norms of candidates are unknowns
    as well; otherwise only moves across a candidate count.
    """

    def __init__(
        self,
        features: RidgeFeatures,
        weights: Float[Tensor, "k p"],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        ranks: Ranks = ALONE,
        free_norms: bool = False,
    ) -> None:
        self.features, self.ranks, self.free_norms = features, ranks, free_norms
        self.p = round(ranks.total(features.p))
        self.published = weights
        self.weights, self.scale = to_unit_scale(weights, dtype, device, ranks)
        self.energy = self._sum_of_squares(self.weights)
        self.outputs = independent_outputs(self.weights, ranks)
        self.affine: AffinePart | None = None
        self.counter = PassCounter(self.p)

    def part(self, rows: int, affine: bool = False) -> "SpanLoss":
        """The same loss on the first rows only, with or without the free affine part."""
        part = object.__new__(SpanLoss)
        part.ranks, part.p, own = self.ranks, rows, self.ranks.share.count(rows)
        part.features = self.features if own == self.features.p else self.features.part(0, own)
        part.scale, part.outputs, part.free_norms = self.scale, self.outputs, self.free_norms
        part.published = self.published[:, :own]
        part.weights = self.weights[:, :own]
        # the first rows may be dead: nothing is left of nothing
        part.energy = self._sum_of_squares(part.weights) or 1.0
        part.affine = AffinePart(part.features, part.weights, self.ranks) if affine else None
        part.counter = self.counter
        if affine:
            part.count_passes(1)
        return part

    def with_rows(self, rows: Rows) -> "SpanLoss":
        """The same loss with V kept another way."""
        other = self.part(self.p)
        other.features = replace(self.features, rows=rows)
        return other

    def to(self, dtype: torch.dtype) -> "SpanLoss":
        """The same loss in another precision, from the published weights; V is converted block by block."""
        converted = self.part(self.p)
        if dtype != self.weights.dtype:
            converted.weights = (self.published.double() / self.scale).to(dtype=dtype, device=self.weights.device)
            converted.energy = self._sum_of_squares(converted.weights)
        return converted

    def fit(self, candidates: Float[Tensor, "m d"]) -> Fit:
        """Projects the weights on the span of the candidates' features. One pass."""
        candidates = self.ranks.same(candidates)
        m, k = len(candidates), len(self.weights)
        preactivations = memory.empty(m, self.features.p, candidates)
        features = memory.empty(m, self.features.p, candidates)
        gram = torch.zeros(m, m, dtype=torch.float64, device=candidates.device)
        moments = torch.zeros(m, k, dtype=torch.float64, device=candidates.device)
        overlap = self.affine.no_overlap(m) if self.affine else None
        with torch.no_grad():  # in-place paths of the activations
            for block, values in self.features.preactivation_blocks(candidates, out=preactivations):
                features[:, block] = mapped = self.features.activation.value(values)
                gram += mapped @ mapped.T
                moments += mapped @ self.weights[:, block].T
                if self.affine and overlap is not None:
                    overlap += self.affine.times(mapped, block)
        gram, moments = self.ranks.sum(gram), self.ranks.sum(moments)
        self.count_passes(1)
        careful = candidates.dtype != torch.float64 and _nearly_singular(gram)
        if careful:
            gram, moments = self._exact_products(features)
        if self.affine and overlap is not None:
            overlap = self.ranks.sum(overlap)
            overlap_scaled = overlap @ self.affine.inverse
            gram -= overlap_scaled @ overlap.T
            moments -= overlap_scaled @ self.affine.moments
            overlap = overlap_scaled
        inverse = invert_gram(gram)
        coefficients, unknown = inverse @ moments, float("nan")
        fit = Fit(candidates, features, inverse, coefficients, self.weights, unknown, preactivations, gram, overlap)
        finished = self._finish(fit, careful)
        return finished if careful or finished.loss > EXACT_BELOW else self._finish(fit, True)

    def _exact_products(self, features: Float[Tensor, "m p"]) -> tuple[Float[Tensor, "m m"], Float[Tensor, "m k"]]:
        """F Fᵀ and F θᵀ in float64, which nearly parallel features (sigmoid, copies) need. No pass."""
        gram = torch.zeros(len(features), len(features), dtype=torch.float64, device=features.device)
        moments = torch.zeros(len(features), len(self.weights), dtype=torch.float64, device=features.device)
        for block in blocks(self.features.rows):
            exact = features[:, block].double()
            gram += exact @ exact.T
            moments += exact @ self.weights[:, block].double().T
        return self.ranks.sum(gram), self.ranks.sum(moments)

    def project(self, fit: Fit, values: Float[Tensor, "k p"]) -> tuple[Float[Tensor, "k p"], Float[Tensor, "m k"]]:
        """The part of k vectors orthogonal to the span, and the coefficients of the candidates in the other part."""
        onto = self.ranks.sum((fit.features @ values.T).double())
        if self.affine is None or fit.affine_overlap is None:
            coefficients = fit.gram_inverse @ onto
            return values - coefficients.to(values.dtype).T @ fit.features, coefficients
        along = self.affine.products(values)
        coefficients = fit.gram_inverse @ (onto - fit.affine_overlap @ along)
        slopes = self.affine.inverse @ along - fit.affine_overlap.T @ coefficients
        left = values - coefficients.to(values.dtype).T @ fit.features
        return left - self.affine.combine(slopes).to(values.dtype), coefficients

    def bare_residual(self) -> Float[Tensor, "k p"]:
        """What is left of the weights without any candidate: all of them, or their part orthogonal to W."""
        if self.affine is None:
            return self.weights
        return self.weights - self.affine.combine(self.affine.inverse @ self.affine.moments)

    def gradient(self, fit: Fit, inactive_slope: float = 0.0) -> Float[Tensor, "m d"]:
        """∂L/∂X̂. One pass. `inactive_slope` replaces a vanishing φ' by a small slope (a surrogate, off by default)."""
        coefficients = fit.coefficients.to(fit.residual.dtype)

        def weigh(block: slice) -> Float[Tensor, "m rows"]:
            slopes = self.features.activation.derivative(fit.preactivations[:, block])
            if inactive_slope:
                slopes = slopes.clamp_min(inactive_slope)
            return slopes * (coefficients @ fit.residual[:, block])

        return self.pull_back(weigh, fit.candidates) * (-2 / self.energy)

    def push_forward(self, directions: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        """P Vᵀ. One pass."""
        self.count_passes(1)
        return self.features.products(directions)

    def pull_back(
        self, weigh: Callable[[slice], Float[Tensor, "m rows"]], like: Float[Tensor, "m d"]
    ) -> Float[Tensor, "m d"]:
        """W V for an m × p matrix that `weigh` makes block by block. One pass."""
        self.count_passes(1)
        with torch.no_grad():
            return self.ranks.sum(self.features.pull_back(weigh, len(like), like.dtype, like.device))

    def predict_loss(self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"]) -> float:
        """||θ − αᵀF||² / ||θ||² for coefficients that were found elsewhere, on other rows. One pass.

        A prediction that overflows is as wrong as a number can say.
        """
        missed = 0.0
        scaled = (coefficients / self.scale).to(candidates.dtype)
        for block, features in self.features.feature_blocks(candidates):
            missed += float((self.weights[:, block] - scaled.T @ features).double().square().sum())
        self.count_passes(1)
        share = self.ranks.total(missed) / self.energy
        return share if math.isfinite(share) else sys.float_info.max

    def _finish(self, fit: Fit, exactly: bool) -> Fit:
        """Residual and loss, after one refinement of the coefficients: the Gram matrix is rounded."""
        residual, coefficients = self._explain(fit, torch.float64 if exactly else self.weights.dtype)
        residual, correction = self.project(fit, residual)
        loss = self._sum_of_squares(residual) / self.energy
        return replace(fit, coefficients=coefficients + correction, residual=residual, loss=loss)

    def _explain(self, fit: Fit, dtype: torch.dtype) -> tuple[Float[Tensor, "k p"], Float[Tensor, "m k"]]:
        """θ − αᵀF. In float64 where large coefficients of nearly parallel features cancel, or little is left."""
        coefficients = fit.coefficients
        residual = torch.empty_like(self.weights)
        for block in blocks(self.features.rows):
            explained = coefficients.T.to(dtype) @ fit.features[:, block].to(dtype)
            residual[:, block] = self.weights[:, block].to(dtype) - explained
        if self.affine is not None and fit.affine_overlap is not None:
            slopes = self.affine.inverse @ self.affine.moments - fit.affine_overlap.T @ coefficients
            residual -= self.affine.combine(slopes)
        return residual, coefficients

    def _sum_of_squares(self, values: Float[Tensor, "k p"]) -> float:
        return self.ranks.total(float(values.double().square().sum()))

    def allowed(self, directions: Float[Tensor, "m c"], candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
        """The part of each direction that candidates may move along: all of it, or what leaves their norms alone."""
        return directions if self.free_norms else tangent(directions, candidates)

    def retracted(self, candidates: Float[Tensor, "m d"], norm: float) -> Float[Tensor, "m d"]:
        """Back to the norm that candidates have, where they have one."""
        return candidates if self.free_norms else to_norm(candidates, norm)

    @property
    def unknowns(self) -> int:
        """Numbers of one candidate and its coefficients: d − 1 + k at a known norm."""
        return self.features.d - (not self.free_norms) + self.outputs

    def count_passes(self, sweeps: int) -> None:
        self.counter.total += sweeps * self.p / self.counter.all_rows

    @property
    def equations(self) -> int:
        """Each row of V is one equation for each independent output: n samples give k > n outputs only n of them."""
        return self.outputs * self.p

    @property
    def passes(self) -> float:
        """Sweeps over V so far, by this loss and all its parts."""
        return self.counter.total


def _nearly_singular(gram: Float[Tensor, "m m"]) -> bool:
    """Whether the rounding of float32 products could matter for the inverse."""
    scale = gram.diagonal().clamp_min(torch.finfo(gram.dtype).tiny).rsqrt()
    values = torch.linalg.eigvalsh(gram * scale[:, None] * scale)
    return not bool(values[0] > NEARLY_SINGULAR * values[-1])
