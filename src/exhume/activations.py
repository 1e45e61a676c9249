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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from exhume.errors import UsageError
from exhume.extensions import Registry

MAX_HERMITE_ORDER = 200
GRID = torch.linspace(0.01, 8.0, 128, dtype=torch.float64)
"""Where the symmetries of φ are looked at, on both sides of 0: beyond the 6 at which ReLU6 ends."""
ROUNDING = 1e-12


@dataclass(frozen=True)
class Activation:
    """An activation φ with its derivative. It knows its symmetries by itself: they are read off its values.

    >>> activation("relu").value(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    >>> activation("relu").derivative(torch.tensor([-1.0, 2.0]))
    tensor([0., 1.])
    """

    name: str
    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, name: str, value: Callable[[Tensor], Tensor]) -> "Activation":
        """An activation whose derivative is left to autograd."""

        def derivative(z: Tensor) -> Tensor:
            recorded = torch.is_grad_enabled() and z.requires_grad
            with torch.enable_grad():
                point = z if recorded else z.detach().requires_grad_()
                return torch.autograd.grad(value(point).sum(), point, create_graph=recorded)[0]

        return cls(name, value, derivative)

    @cached_property
    def parity(self) -> Literal["even", "odd", "none"]:
        """φ(−z) = φ(z), φ(−z) = −φ(z), or neither."""
        return "odd" if self._is_zero(self._even) else "even" if self._is_zero(self._odd) else "none"

    @cached_property
    def linear(self) -> bool:
        """φ(z) = c z."""
        return self.parity == "odd" and self._has_linear_odd_part

    @cached_property
    def linear_plus_even(self) -> bool:
        """φ(z) - φ(-z) = c z, with an even part that is not zero: signs can be repaired by a regression."""
        return self.parity == "none" and self._has_linear_odd_part

    @cached_property
    def homogeneous(self) -> bool:
        """φ(t z) = t φ(z) for t > 0: the norms of the samples cannot be known from the weights."""
        both = torch.cat([GRID, -GRID])
        return self._is_zero(self.value(3 * both) - 3 * self.value(both))

    @cached_property
    def silent_below_zero(self) -> bool:
        """φ = 0 and φ' = 0 below zero: what a unit does not fire on leaves no trace in it."""
        below = -GRID
        return self._is_zero(self.value(below)) and self._is_zero(self.derivative(below))

    @cached_property
    def rectifier(self) -> bool:
        """φ(z) = max(z, 0): what is known of ReLU in closed form holds."""
        return self.silent_below_zero and self._is_zero(self.value(GRID) - GRID)

    @cached_property
    def signs(self) -> str:
        """One sentence: whether the sign of a sample can be known from the weights, and how."""
        if self.parity != "none":
            return _SIGNS_LOST.format(self.parity)
        if self.linear_plus_even:
            return _SIGNS_LINEAR_PLUS_EVEN
        return _SIGNS_CONSTANT if self._is_zero(self._even - self._even.mean()) else _SIGNS_MIXED

    @cached_property
    def _values(self) -> Tensor:
        with torch.no_grad():
            return self.value(torch.stack([GRID, -GRID]))

    @property
    def _odd(self) -> Tensor:
        return (self._values[0] - self._values[1]) / 2

    @property
    def _even(self) -> Tensor:
        return (self._values[0] + self._values[1]) / 2

    @property
    def _has_linear_odd_part(self) -> bool:
        slope = self._odd / GRID
        return not self._is_zero(self._odd) and self._is_zero(slope - slope.mean())

    def _is_zero(self, values: Tensor) -> bool:
        """To rounding, where φ is evaluated in double precision."""
        return float(values.abs().max()) <= ROUNDING * (1 + float(self._values.abs().max()))

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


_SIGNS_LOST = (
    "not identifiable: the activation is {}, so flipping a sample together with its coefficient changes no weight"
)
_SIGNS_LINEAR_PLUS_EVEN = (
    "identifiable through the linear part only: the odd part of the activation is c z / 2, so once every sample is "
    "known up to sign, regress theta on the even parts and on v; the linear coefficients are unique for n <= d "
    "independent samples"
)
_SIGNS_CONSTANT = (
    "identifiable through the constant part only: the activation is a constant + odd, so flipping a sample together "
    "with its coefficient alpha shifts every weight of theta by a multiple of alpha alone, and one number, the sum of "
    "the alphas, has to tell all signs"
)
_SIGNS_MIXED = "identifiable directly: Hermite coefficients of both parities beyond order 2 are not zero"

ACTIVATIONS: Registry[Activation] = Registry(
    "exhume.activations",
    "an activation",
    (
        Activation("relu", _relu, _relu_derivative),
        Activation("tanh", torch.tanh, _tanh_derivative),
        Activation("relu+tanh", _relu_plus_tanh, _relu_plus_tanh_derivative),
        Activation("gelu", _gelu, _gelu_derivative),
        Activation("sigmoid", torch.sigmoid, _sigmoid_derivative),
        Activation("softplus", _softplus, torch.sigmoid),
        Activation("erf", torch.erf, _erf_derivative),
        Activation("linear", torch.clone, torch.ones_like),
        Activation.of("silu", torch.nn.functional.silu),
        Activation.of("leaky_relu", torch.nn.functional.leaky_relu),
        Activation.of("elu", torch.nn.functional.elu),
        Activation.of("relu6", torch.nn.functional.relu6),
    ),
)


def activation(name: str) -> Activation:
    """The activation of that name."""
    return ACTIVATIONS.find(name)


def register_activation(new: Activation) -> Activation:
    """Makes an activation known under its name in this process.

    For every process, by an entry point of its package: group `exhume.activations`, the name, and where it is.
    """
    return ACTIVATIONS.add(new)


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
