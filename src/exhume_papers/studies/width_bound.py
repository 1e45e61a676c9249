"""How wide a random features model has to be for its weights to determine the data, with all constants: a bound.

*Derived here.* It puts together what such bounds are made of, Hoeffding's inequality and a cover of all candidates; the
constants are this project's own.

Weights θ_k = Σ_i α_i σ(w_k·x_i) of width m, and candidates (x̂_j, α̂_j), j = 1..n, with the loss

    L_m = (1/m) Σ_k (Σ_i α_i σ(w_k·x_i) − Σ_j α̂_j σ(w_k·x̂_j))²,        L = E[L_m].

Let η be the least L of candidates that are not ε-close to the data. Each term of L_m is at most 4 A² B². For one choice
of candidates, L_m < L − η / 2 has a probability of at most exp(−m η² / (32 A⁴ B⁴)). Candidates whose x̂ differ by at
most η / (32 A² B L R) and whose α̂ by η / (32 A B²) have losses that differ by at most η / 4, twice that if they are to
be chosen among those that are not close, and a ball of dimension r is covered by (1 + 2 / s)^r balls of radius s. Hence
with probability 1 − δ no candidates with L_m = 0 exist that are not ε-close to the data, if

    m ≥ (32 A⁴ B⁴ / η²) [ n r log(1 + 64 A² B L R / η) + n log(1 + 64 A² B² / η) + log(1 / δ) ],

with r = d, or the dimension of a subspace that the data are known to lie in.
"""

import math
from dataclasses import dataclass

from exhume.errors import UsageError

ASSUMPTIONS = (
    "the rows w_k are independent, all of one distribution, and known, with ||w_k|| <= R",
    "the activation is bounded by B on |z| <= R and has slopes of at most L (ReLU: B = R, L = 1)",
    "samples and candidates have norm 1, and there are as many candidates as samples",
    "the coefficients of both have absolute values that add up to at most A",
    "eta is the least infinite-width loss of candidates that are not close to the data; it is 0 for even and odd "
    "activations unless closeness is up to sign",
    "the weights are exact: no noise, no rounding, and features that did not move in training",
    "the attack finds a global minimum; nothing is said about how",
)


@dataclass(frozen=True)
class WidthBound:
    """The constants of the bound. `dimension` is d, or r for a known subspace."""

    samples: int
    dimension: int
    separation: float
    coefficient_sum: float = 1.0
    activation_bound: float = 1.0
    lipschitz: float = 1.0
    row_norm: float = 1.0
    failure_rate: float = 0.05

    def __post_init__(self) -> None:
        for name in ("samples", "dimension"):
            if getattr(self, name) < 1:
                raise UsageError(f"expected at least 1 for {name}, found {getattr(self, name)}")
        for name in ("separation", "coefficient_sum", "activation_bound", "lipschitz", "row_norm"):
            if not 0 < getattr(self, name) < math.inf:
                said = name.replace("_", " ")
                raise UsageError(f"expected a positive number for {said}, found {getattr(self, name)}")
        if not 0 < self.failure_rate < 1:
            raise UsageError(f"expected a failure rate between 0 and 1, found {self.failure_rate}")
        if self.separation > 4 * self._scale:
            raise UsageError(
                f"expected a separation of at most 4 A^2 B^2 = {4 * self._scale:g}, which no loss exceeds, "
                f"found {self.separation:g}"
            )

    @property
    def _scale(self) -> float:
        return (self.coefficient_sum * self.activation_bound) ** 2

    @property
    def cover(self) -> float:
        """The logarithm of the number of candidates that stand for all of them."""
        moves = 64 * self.coefficient_sum**2 * self.activation_bound * self.lipschitz * self.row_norm / self.separation
        return self.samples * (self.dimension * math.log1p(moves) + math.log1p(64 * self._scale / self.separation))

    @property
    def width(self) -> int:
        """m: at this width and above, the data are determined with probability 1 − δ.

        >>> WidthBound(samples=1, dimension=2, separation=0.3).width
        6791
        """
        return math.ceil(32 * (self._scale / self.separation) ** 2 * (self.cover - math.log(self.failure_rate)))

    def explain(self) -> list[str]:
        return [
            f"A width of {self.width:,} is enough: with probability {1 - self.failure_rate:g} the weights then "
            f"determine {self.samples} samples in {self.dimension} dimensions, up to the closeness that eta = "
            f"{self.separation:g} stands for.",
            "The bound is derived here, and sufficient, not necessary: attacks succeed at widths of about r n, far "
            "below it.",
            *(f"It assumes that {assumption}." for assumption in ASSUMPTIONS),
        ]


def one_sample_separation(dimension: int, row_norm: float, coefficient: float, closeness: float) -> float:
    """η for one sample of norm 1, ReLU, and rows that are uniform on the sphere of radius R, up to sign.

    With the kernel K(φ) = (R² / 2πr) (sin φ + (π − φ) cos φ) at the angle φ between sample and candidate, the best
    coefficient of a candidate leaves α² (K(0) − K(φ)² / K(0)). It grows with φ, so the least is at the angle of two
    points on the sphere that are `closeness` apart; of the two signs the other one, at π − φ, leaves more.

    >>> round(one_sample_separation(2, 2**0.5, 1.0, 1.0), 3)
    0.315
    """
    if not 0 < closeness <= math.sqrt(2):
        raise UsageError(f"expected a closeness from 0 to sqrt(2), the chance level, found {closeness}")
    angle = 2 * math.asin(closeness / 2)
    alike = (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / math.pi
    return coefficient**2 * row_norm**2 / (2 * dimension) * (1 - alike**2)
