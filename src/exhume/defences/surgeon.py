"""Optimal Brain Surgeon for a linear head θ on fixed features with the square loss, where p > n.

Removing weight q at the least cost to second order costs w_q² / 2[H⁻¹]_qq and moves the others by
−(w_q / [H⁻¹]_qq) H⁻¹e_q. Here H = ΦᵀΦ (p × p) is singular. With K = ΦΦᵀ (n × n)

    ε (H + εI)⁻¹ = I − Φᵀ(K + εI)⁻¹Φ  →  P = I − ΦᵀK⁺Φ          as ε → 0,

the projector on the weights that the training data do not see, and ε drops out of both formulas. With the leverage
h_q = φ_qᵀK⁺φ_q of feature q, P_qq = 1 − h_q:

    remove     q = argmin w_q² / (1 − h_q)          u = K⁺φ_q, c = w_q / (1 − h_q)
    correct    w_j += c φ_j·u                       h_j += (φ_j·u)² / (1 − h_q)
    dual       α += c u,  K⁺ += u uᵀ / (1 − h_q),   K −= φ_q φ_qᵀ

Corrections stay in the null space, so the training fit is kept exactly down to n weights. They are also combinations
of the surviving features: if θ = Φᵀα before, the survivors are θ_S = Φ_Sᵀα' after, with K_S α' = Kα. A pruned model is
the min-norm fit on the features that were kept, and each surviving weight is still an exact equation. At n weights the
projector vanishes and H_S = Φ_SᵀΦ_S (at most n × n) is regular: the textbook formulas go on from there.

A ridge fit has the Hessian H + nλI: everything holds with K + nλI for K, without a limit. Of a head with k outputs
whole features are removed, at the cost Σ_o w_oq² / (1 − h_q).

*Not all weights are looked at in each step.* Since α moves by Δα in all, √cost_j falls by at most
||Δα||_K √(h_j / (1 − h_j)) (Cauchy-Schwarz; h_j only grows). A pool of the cheapest weights is followed exactly until a
weight outside it could be cheaper: the same greedy order at a fraction of the n p operations per step.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.errors import ExhumeError

SINGULAR = 1e-12  # of K's largest eigenvalue: directions of the labels that no weight reaches
NEEDED = 1e-9  # 1 − h below this: the fit cannot be kept without this weight


@dataclass(frozen=True, eq=False, repr=False)
class Surgery:
    """The weights that are left (k × p'), and which they are (increasing)."""

    weights: Float[Tensor, "k kept"]
    kept: Int[Tensor, " kept"]


def operate(
    features: Float[Tensor, "n p"], weights: Float[Tensor, "k p"], remove: int, damping: float = 0.0
) -> Surgery:
    """Removes so many weights, cheapest first. `features` are those of the training data, `damping` is nλ of a ridge.

    The weights need not be a combination of the features: whatever they have besides stays as it is.
    """
    p = features.shape[1]
    if not 0 <= remove < p:
        raise ExhumeError(f"expected to remove between 0 and {p - 1} of {p} weights, found {remove}")
    patient = _Patient(features, weights, damping)
    while remove > 0 and patient.removable > 0:
        remove -= patient.remove_cheapest(remove)
    kept, left = patient.kept, patient.weights()
    if remove > 0:
        kept, left = _remove_regular(patient.rows[kept], kept, left, remove)
    return Surgery(torch.from_numpy(left.T.copy()).to(weights.dtype), torch.from_numpy(kept))


class _Patient:
    """The state of an operation: which weights are alive, K of their features, and α, all in float64."""

    def __init__(self, features: Tensor, weights: Tensor, damping: float) -> None:
        self.rows = np.ascontiguousarray(features.T.double().cpu().numpy())  # p × n: what the pool picks is contiguous
        if not np.isfinite(self.rows).all():
            raise ExhumeError("expected finite features of the training data, found NaN or infinite ones")
        self.gram = self.rows.T @ self.rows + damping * np.eye(self.rows.shape[1])
        values, _ = np.linalg.eigh(self.gram)
        self.cutoff = max(SINGULAR * values[-1], np.finfo(float).tiny)
        self.rank = 0 if damping else int((values > self.cutoff).sum())
        trained = weights.T.double().cpu().numpy()  # p × k
        alpha = self._inverse() @ (self.rows.T @ trained)
        self.outside = trained - self.rows @ alpha  # what is no combination of the features
        self.moments = self.gram @ alpha  # K_S α, which only `outside` changes when a weight goes
        self.kept = np.arange(len(self.rows))

    @property
    def removable(self) -> int:
        """How many weights can go while the training fit is kept."""
        return len(self.kept) - max(self.rank, 1)

    def weights(self) -> np.ndarray:
        return self.outside[self.kept] + self.rows[self.kept] @ (self._inverse() @ self.moments)

    def remove_cheapest(self, most: int) -> int:
        """Removes the cheapest weights, one after the other, for as long as one pool is sure to hold them."""
        inverse = self._inverse()
        alpha, gram, most = inverse @ self.moments, self.gram.copy(), min(most, self.removable)
        living = self.rows[self.kept]
        values = self.outside[self.kept] + living @ alpha
        leverage = np.einsum("jn,jn->j", living @ inverse, living)
        costs = _costs(values, leverage)
        size = min(len(costs), 2 + math.isqrt(2 * living.size))
        pool = np.argpartition(costs, size - 1)[:size] if size < len(costs) else np.arange(size)
        limit, slack = _outside_the_pool(costs, leverage, pool)
        living, values, leverage, costs = living[pool], values[pool], leverage[pool], costs[pool]
        gone: list[int] = []
        moved = np.zeros_like(alpha)
        while len(gone) < min(most, (size + 1) // 2):
            q = int(np.argmin(costs))
            drift = math.sqrt(max(float((moved * (gram @ moved)).sum()), 0.0))
            if gone and math.sqrt(costs[q]) > limit - slack * drift:
                break
            if math.isinf(costs[q]):  # rounding: weights are left over that could go, but none whose cost is known
                self.rank = len(self.kept) - len(gone)
                break
            row, free = living[q].copy(), 1 - leverage[q]
            along, change = inverse @ row, values[q] / free
            shares = living @ along
            values += np.outer(shares, change)
            leverage += shares**2 / free
            costs = _costs(values, leverage)
            gone.append(q)
            costs[gone] = np.inf
            moved += np.outer(along, change)
            inverse += np.outer(along, along) / free
            self.gram -= np.outer(row, row)
            self.moments += np.outer(row, self.outside[self.kept[pool[q]]])
        self.kept = np.delete(self.kept, pool[gone])
        return len(gone)

    def _inverse(self) -> np.ndarray:
        """K_S⁺, afresh: updates of it are only followed within one pool, so that rounding does not add up."""
        values, vectors = np.linalg.eigh(self.gram)
        reciprocal = np.where(values > self.cutoff, 1 / np.maximum(values, self.cutoff), 0.0)
        return (vectors * reciprocal) @ vectors.T


def _costs(values: np.ndarray, leverage: np.ndarray) -> np.ndarray:
    free = 1 - leverage
    squares = np.einsum("jk,jk->j", values, values)
    return np.where(free > NEEDED, squares / np.maximum(free, NEEDED), np.inf)


def _outside_the_pool(costs: np.ndarray, leverage: np.ndarray, pool: np.ndarray) -> tuple[float, float]:
    """√ of the least cost outside the pool, and how fast that may fall as α moves."""
    outside = np.ones(len(costs), dtype=bool)
    outside[pool] = False
    outside &= np.isfinite(costs)  # leverage only grows: what is needed now stays so
    if not outside.any():
        return math.inf, 0.0
    leverage = leverage[outside].clip(0, 1 - NEEDED)
    return math.sqrt(costs[outside].min()), math.sqrt(float((leverage / (1 - leverage)).max()))


def _remove_regular(
    rows: np.ndarray, kept: np.ndarray, values: np.ndarray, remove: int
) -> tuple[np.ndarray, np.ndarray]:
    """Optimal Brain Surgeon as published: no more weights than samples are left, and each one lost costs some fit."""
    hessian = rows @ rows.T
    inverse = np.linalg.pinv(hessian, rcond=SINGULAR, hermitian=True)
    for _ in range(remove):
        diagonal = np.maximum(inverse.diagonal(), np.finfo(float).tiny)
        q = int(np.argmin(np.square(values).sum(axis=1) / diagonal))
        column = inverse[:, q]
        values = values - np.outer(column, values[q]) / diagonal[q]
        inverse = inverse - np.outer(column, column) / diagonal[q]
        values, kept = np.delete(values, q, axis=0), np.delete(kept, q)
        inverse = np.delete(np.delete(inverse, q, axis=0), q, axis=1)
    return kept, values
