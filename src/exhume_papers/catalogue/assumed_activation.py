"""An activation that meets the paper's Assumption 2, which ReLU, tanh and ReLU + tanh do not.

    φ(z) = tanh z + cos z − (e^{3/2} / 4) cos 2z − (3/4) e^{−1/2}

The coefficients of cos az on the Hermite polynomials of order 2k are (−1)^k a^{2k} e^{−a²/2}, and 0 for odd orders. So
the factor of cos 2z makes μ₂ = 0 and the constant makes μ₀ = 0; μ₁ and μ₃ are those of tanh, and μ₄ ≠ 0 has the other
parity. φ is bounded and has derivatives of all orders, so φ and φ′ are Lipschitz.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.activations import Activation, hermite_coefficients

_SECOND = math.exp(1.5) / 4
_CONSTANT = 0.75 * math.exp(-0.5)
ZERO = 1e-9
"""Of a Hermite coefficient: the integrals are accurate to about 1e-14."""


def _value(z: Tensor) -> Tensor:
    return torch.tanh(z) + torch.cos(z) - _SECOND * torch.cos(2 * z) - _CONSTANT


ASSUMED = Activation.of("tanh+cos", _value)


@dataclass(frozen=True)
class Assumption:
    """What Assumption 2 asks of the Hermite coefficients of φ, one by one."""

    no_constant: bool
    no_square: bool
    linear_part: bool
    both_parities: bool

    @property
    def holds(self) -> bool:
        return self.no_constant and self.no_square and self.linear_part and self.both_parities


def assumption_2(phi: Activation, order: int = 12) -> Assumption:
    """μ₀ = μ₂ = 0, μ₁ ≠ 0, and coefficients of order 3 and more that are not 0, of both parities.

    >>> assumption_2(ASSUMED).holds
    True
    """
    mu = abs(hermite_coefficients(phi, order, normalised=True))
    return Assumption(
        no_constant=bool(mu[0] < ZERO),
        no_square=bool(mu[2] < ZERO),
        linear_part=bool(mu[1] > ZERO),
        both_parities=bool(mu[3::2].max() > ZERO and mu[4::2].max() > ZERO),
    )
