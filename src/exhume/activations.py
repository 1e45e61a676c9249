"""The activations φ, their derivatives φ′, and what each of them lets weights say about the sign and norm of a sample.

A victim's weights are θ_k = Σ_i α_i φ(v_k·x_i). Three properties of φ decide what can be read back:

* parity: if φ is odd or even, (x_i, α_i) and (−x_i, ∓α_i) give the same weights, so the sign of x_i is lost;
* "linear + even", φ(z) − φ(−z) = c z with an even part that is not zero: the nonlinear part of θ is blind to signs,
  the linear part Σ_i α_i c x_i / 2 shows them;
* homogeneity, φ(t z) = t φ(z) for t > 0: the norm of x_i moves into α_i and is lost.

The Hermite coefficients of φ (`hermite_coefficients`) say at which order each of this happens.

`value` and `derivative` always return fresh memory, so a caller may overwrite the result in place. They are safe under
autograd; while gradients are not recorded (`torch.no_grad`) they reuse their own intermediate results.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from exhume.errors import UsageError

MAX_HERMITE_ORDER = 200


@dataclass(frozen=True)
class Activation:
    """An activation φ with its derivative and its symmetries.

    >>> activation("relu").value(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    >>> activation("relu").derivative(torch.tensor([-1.0, 2.0]))
    tensor([0., 1.])
    """

    name: str
    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    signs: str
    """One sentence: whether the sign of a sample can be told from the weights, and how."""
    linear_plus_even: bool
    """φ(z) - φ(-z) = c z, with an even part that is not zero: signs can be repaired by a regression."""
    parity: Literal["even", "odd", "none"]
    homogeneous: bool
    """φ(t z) = t φ(z) for t > 0: the norms of the samples cannot be told from the weights."""

    @property
    def leak(self) -> float:
        """The share of a gradient that passes below zero, at the size that preactivations usually have: 0 for ReLU."""
        at = torch.tensor([-0.5, 0.5], dtype=torch.float64)
        below, above = self.derivative(at).abs().tolist()
        return below / above if above > 0 else 1.0

    @property
    def kinked(self) -> bool:
        """Whether φ has no derivative at 0."""
        left, right = self.derivative(torch.tensor([-1e-9, 1e-9], dtype=torch.float64)).tolist()
        return abs(left - right) > 1e-3


def _relu(z: Tensor) -> Tensor:
    return z.clamp_min(0)


def _relu_derivative(z: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return (z > 0).to(z.dtype)
    # written as numbers at once: five times faster than a mask that is converted
    return torch.gt(z, 0, out=torch.empty_like(z))


def _tanh_derivative(z: Tensor) -> Tensor:
    t = torch.tanh(z)
    if torch.is_grad_enabled():
        return 1 - t.square()
    return t.square_().neg_().add_(1)


def _relu_plus_tanh(z: Tensor) -> Tensor:
    return z.clamp_min(0).add_(torch.tanh(z))


def _relu_plus_tanh_derivative(z: Tensor) -> Tensor:
    return _tanh_derivative(z).add_(_relu_derivative(z))


def _gelu(z: Tensor) -> Tensor:
    return torch.nn.functional.gelu(z)


def _gelu_derivative(z: Tensor) -> Tensor:
    """Φ(z) + z Φ′(z); erfc instead of 1 + erf keeps the left tail accurate."""
    cumulative = torch.erfc(z * -math.sqrt(0.5)).mul_(0.5)
    density = z.square().mul_(-0.5)
    density = torch.exp(density) if torch.is_grad_enabled() else density.exp_()
    return cumulative.addcmul_(z, density, value=1 / math.sqrt(2 * math.pi))


def _sigmoid_derivative(z: Tensor) -> Tensor:
    """σ(z) σ(−z), which unlike σ(z) − σ(z)² keeps its right tail."""
    if torch.is_grad_enabled():
        return torch.sigmoid(z) * torch.sigmoid(-z)
    return torch.sigmoid(z).mul_(torch.neg(z).sigmoid_())


def _softplus(z: Tensor) -> Tensor:
    # PyTorch's own threshold of 20 turns softplus into the identity with an error of 2e-9, too coarse for float64.
    return torch.nn.functional.softplus(z, threshold=40)


def _erf_derivative(z: Tensor) -> Tensor:
    exponent = z.square().neg_()
    if torch.is_grad_enabled():
        return torch.exp(exponent) * (2 / math.sqrt(math.pi))
    return exponent.exp_().mul_(2 / math.sqrt(math.pi))


_SIGNS_ODD = (
    "not identifiable: the activation is odd, so flipping a sample together with its coefficient changes no weight"
)
_SIGNS_LINEAR_PLUS_EVEN = (
    "identifiable through the linear part only: the odd part of the activation is c z / 2, so once every sample is "
    "known up to sign, regress theta on the even parts and on v; the linear coefficients are unique for n <= d "
    "independent samples"
)
_SIGNS_SIGMOID = (
    "identifiable through the constant part only: the activation is 1/2 + odd, so flipping a sample together with its "
    "coefficient alpha shifts every weight of theta by alpha alone, and one number, the sum of the alphas, has to tell "
    "all signs"
)
_SIGNS_MIXED = "identifiable directly: Hermite coefficients of both parities beyond order 2 are not zero"

_MEMBERS = (
    Activation("relu", _relu, _relu_derivative, _SIGNS_LINEAR_PLUS_EVEN, True, "none", True),
    Activation("tanh", torch.tanh, _tanh_derivative, _SIGNS_ODD, False, "odd", False),
    Activation("relu+tanh", _relu_plus_tanh, _relu_plus_tanh_derivative, _SIGNS_MIXED, False, "none", False),
    Activation("gelu", _gelu, _gelu_derivative, _SIGNS_LINEAR_PLUS_EVEN, True, "none", False),
    Activation("sigmoid", torch.sigmoid, _sigmoid_derivative, _SIGNS_SIGMOID, False, "none", False),
    Activation("softplus", _softplus, torch.sigmoid, _SIGNS_LINEAR_PLUS_EVEN, True, "none", False),
    Activation("erf", torch.erf, _erf_derivative, _SIGNS_ODD, False, "odd", False),
    Activation("linear", torch.clone, torch.ones_like, _SIGNS_ODD, False, "odd", True),
)

ACTIVATIONS: Mapping[str, Activation] = MappingProxyType({member.name: member for member in _MEMBERS})


def activation(name: str) -> Activation:
    """The activation of that name."""
    if name not in ACTIVATIONS:
        raise UsageError(f"expected an activation out of {', '.join(ACTIVATIONS)}; found {name!r}")
    return ACTIVATIONS[name]


def hermite_coefficients(act: Activation, order: int, normalised: bool = False) -> np.ndarray:
    """c_l = E[φ(z) He_l(z)] for z ~ N(0, 1) and l = 0..order, with the probabilists' polynomials He_l.

    φ is the sum Σ_l c_l He_l(z) / l!. With `normalised` the coefficients are c_l / √(l!), those of φ in the orthonormal
    basis, whose squares add up to E[φ(z)²].

    Computed in float64 by Gauss-Legendre panels that break at 0, where ReLU has its kink: the error is about 1e-14 of
    the normalised coefficients for every activation here.

    >>> print(hermite_coefficients(activation("relu"), 4).round(3) + 0)
    [ 0.399  0.5    0.399  0.    -0.399]
    """
    if not 0 <= order <= MAX_HERMITE_ORDER:
        raise UsageError(f"expected a Hermite order from 0 to {MAX_HERMITE_ORDER}, found {order}")
    # He_l oscillates up to |z| = 2 sqrt(l) and the Gaussian takes 10 more to fall below the rounding error.
    panels = math.ceil(2 * math.sqrt(order + 1) + 10)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    positive = (np.arange(panels)[:, None] + (nodes + 1) / 2).ravel()
    z = np.concatenate([-positive[::-1], positive])
    half_weights = np.tile(weights / 2, panels)
    measure = np.concatenate([half_weights[::-1], half_weights]) * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    with torch.no_grad():
        weighted = measure * act.value(torch.from_numpy(z)).numpy()

    coefficients = np.empty(order + 1)
    previous, current = np.zeros_like(z), np.ones_like(z)
    for degree in range(order + 1):
        coefficients[degree] = weighted @ current
        following = (z * current - math.sqrt(degree) * previous) / math.sqrt(degree + 1)
        previous, current = current, following
    if normalised:
        return coefficients
    return coefficients * np.array([math.exp(math.lgamma(degree + 1) / 2) for degree in range(order + 1)])
