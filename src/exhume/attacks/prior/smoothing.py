"""Activations averaged over the part of a sample that is not resolved.

Write a sample as x = U z + w with w in the frequencies that a search leaves out. For isotropic rows v the preactivation
v·w is Gaussian and independent of Uᵀv, so what a weight shows of the sample, averaged over w, is φ with the kink washed
out:

    E φ(v·x) = φ_s(v·x̂) = E_g φ(c v·x̂ + s σ g),    c² + s² = 1,   g ~ N(0, 1),

where s² is the share of the sample's energy in w, x̂ = U z / c is what is resolved at the norm of the whole sample, and
σ is the standard deviation of v·x. The deviation from this mean is noise, which a prior has to live with; the mean is
not, and a model without it has to find room for it in the candidates. It also makes the landscape smooth: a search that
begins with a large s and lowers it falls into far fewer bad minima.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from exhume.activations import Activation
from exhume.errors import UsageError

NODES = 15  # of the quadrature, where there is no closed form


def smoothed(activation: Activation, share: float, deviation: float = 1.0) -> Activation:
    """φ_s for s² = `share` of the energy unresolved; `deviation` is that of the preactivations, σ.

    >>> from exhume.activations import activation
    >>> smoothed(activation("relu"), 0.0).value(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    if not 0 <= share < 1:
        raise UsageError(f"expected a share of unresolved energy from 0 to below 1, found {share}")
    if share == 0:
        return activation
    kept, spread = math.sqrt(1 - share), math.sqrt(share) * deviation
    if activation.rectifier:
        return _smoothed_relu(activation, kept, spread)
    return _smoothed_by_quadrature(activation, kept, spread)


def _smoothed_relu(relu: Activation, kept: float, spread: float) -> Activation:
    """z Φ(z / s) + s n(z / s) at c z, with the normal density n and distribution function Φ."""
    ratio = kept / spread

    def value(z: Tensor) -> Tensor:
        scaled = ratio * z
        density = torch.exp(-0.5 * scaled.square()) / math.sqrt(2 * math.pi)
        return spread * (density + scaled * torch.special.ndtr(scaled))

    def derivative(z: Tensor) -> Tensor:
        return kept * torch.special.ndtr(ratio * z)

    return replace(relu, value=value, derivative=derivative)


def _smoothed_by_quadrature(activation: Activation, kept: float, spread: float) -> Activation:
    """Gauss-Hermite; the derivative is that of the sum, so that both agree whatever the error of the quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    steps = list(zip((spread * nodes).tolist(), (weights / weights.sum()).tolist(), strict=True))

    def value(z: Tensor) -> Tensor:
        return torch.stack([weight * activation.value(kept * z + step) for step, weight in steps]).sum(dim=0)

    def derivative(z: Tensor) -> Tensor:
        total = torch.stack([weight * activation.derivative(kept * z + step) for step, weight in steps]).sum(dim=0)
        return kept * total

    return replace(activation, value=value, derivative=derivative)
