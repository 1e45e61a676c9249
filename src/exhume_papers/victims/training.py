"""Fits of a linear head on fixed features, all in the n dual coefficients α with θ = Φᵀ α.

Each of these fits leaves θ in the span of the training features, which is what an attack exploits. They only need the
Gram matrix K = Φ Φᵀ (n × n), never the p parameters:

- min-norm (Eq. 2):  θ = Φ⁺ Y, so α = K⁺ Y;
- ridge (Eq. 169):   θ = Φᵀ (K + nλI)⁻¹ Y;
- logistic:          gradient descent from zero on Σ_i log(1 + exp(−y_i φ(x_i)·θ)). Its steps
                     θ ← θ + η Σ_i y_i σ(−y_i φ(x_i)·θ) φ(x_i) stay in the span, so with θ = Φᵀα they read
                     α ← α + η y ∘ σ(−y ∘ Kα): the same iterates at n² instead of n p operations.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import expit, log_expit
from torch import Tensor

from exhume.errors import ExhumeError, UsageError
from exhume.solving import solving


@dataclass(frozen=True, eq=False, repr=False)
class DualFit:
    """α, the loss on the training data, and how many gradient steps it took (0 for a closed form)."""

    coefficients: Float[Tensor, " n"]
    training_loss: float
    steps: int = 0


@solving("the fit of least norm")
def fit_min_norm(gram: Float[Tensor, "n n"], labels: Float[Tensor, " n"]) -> DualFit:
    """α = K⁺ Y. For p < n the Gram matrix is singular and the fit is the least-squares one.

    K is to be summed in float64: its smallest eigenvalues, without which the labels are not fitted, may be 1e-6 of the
    largest (a feature map with a large mean and a small nonlinear part has few large and many small ones).
    """
    values, vectors = torch.linalg.eigh(gram.double())
    kept = values > len(gram) * torch.finfo(torch.float64).eps * values[-1]
    reciprocal = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    coefficients = vectors @ (reciprocal * (vectors.T @ labels.double()))
    return DualFit(coefficients, _mean_squared_error(gram, coefficients, labels))


@solving("the ridge regression")
def fit_ridge(gram: Float[Tensor, "n n"], labels: Float[Tensor, " n"], penalty: float) -> DualFit:
    """α = (K + nλI)⁻¹ Y with λ = `penalty`, the minimiser of (1/n) Σ (φ(x_i)·θ − y_i)² + λ ||θ||²."""
    if not 0 < penalty < math.inf:
        raise UsageError(f"expected a positive ridge penalty, found {penalty}")
    shifted = gram.double() + len(gram) * penalty * torch.eye(len(gram), dtype=torch.float64)
    coefficients = torch.linalg.solve(shifted, labels.double())
    return DualFit(coefficients, _mean_squared_error(gram, coefficients, labels))


def fit_logistic(
    gram: Float[Tensor, "n n"], labels: Float[Tensor, " n"], steps: int, step_size: float | None = None
) -> DualFit:
    """`steps` steps of gradient descent from zero on the summed logistic loss, in the dual coefficients.

    The default step is 1 / (λ_max(K) / 4), the inverse of the largest curvature that the loss can have.
    """
    if steps < 1:
        raise UsageError(f"expected at least 1 step, found {steps}")
    if step_size is not None and not 0 < step_size < math.inf:
        raise UsageError(f"expected a positive step, found {step_size}")
    if not torch.all(labels.abs() == 1):
        raise UsageError("expected labels -1 and +1 for the logistic loss, found others; the sphere has --labels sign")
    kernel, signs = gram.double().numpy(), labels.double().numpy()
    if not kernel.any():
        raise ExhumeError("expected features that differ from zero, found all of them zero: nothing can be learned")
    if step_size is None:
        step_size = 4 / float(np.linalg.eigvalsh(kernel)[-1])
    signed_kernel = signs[:, None] * kernel * signs  # then margins = signed_kernel @ (y ∘ α)
    scaled = np.zeros_like(signs)
    for _ in range(steps):
        scaled += step_size * expit(-(signed_kernel @ scaled))
    if not np.isfinite(scaled).all():
        raise ExhumeError(f"expected gradient descent to stay finite, found overflow at step size {step_size:g}")
    loss = float(-log_expit(signed_kernel @ scaled).mean())
    return DualFit(torch.from_numpy(signs * scaled), loss, steps)


def _mean_squared_error(
    gram: Float[Tensor, "n n"], coefficients: Float[Tensor, " n"], labels: Float[Tensor, " n"]
) -> float:
    return float((gram.double() @ coefficients - labels.double()).square().mean())
