"""How wide a random features model has to be for its weights to determine the data, with all constants: a bound.

*Derived here.* It puts together what such bounds are made of, a tail inequality and a cover of all candidates; the
constants are this project's own.

Weights θ_k = Σ_i α_i σ(w_k·x_i) of width m, and candidates (x̂_j, α̂_j), j = 1..n, with the loss

    L_m = (1/m) Σ_k f_k²,      f_k = Σ_i α_i σ(w_k·x_i) − Σ_j α̂_j σ(w_k·x̂_j),      L = E[f²].

The samples do not depend on the rows, but trained coefficients α do. So the bound is uniform over all α that are
admissible (absolute values that add up to at most A, each at least a), and

    η = inf { L : α admissible, ‖α̂‖₁ ≤ A, x̂ not ε-close to the data }.

*One choice of (α, α̂, x̂).* 0 ≤ f² ≤ b = 4 A² B², so E[f⁴] ≤ b L, and for terms that are not negative P(L_m ≤ L − t) ≤
exp(−m t² / (2 E[f⁴])) (Bernstein, one-sided). Where L ≥ 3η/4, L_m ≤ η/4 has t ≥ 2L/3, hence a probability of at most
exp(−m (2/9) L / b) ≤ exp(−m η / (24 A² B²)).

*All of them.* Moving α and α̂ by at most η / (48 A B²) each (in the sum of absolute values) and x̂ by η / (48 A² B L R)
changes f by at most η / (16 A B), and f², L_m and L by at most η / 4. A ball of dimension q is covered by (1 + 2 / s)^q
balls of radius s of its own, in any norm. If L_m = 0 for some x̂ that is not close, then L ≥ η there; at the nearest
point of the cover, which itself may be anywhere, L ≥ 3η/4 and L_m ≤ η/4. Hence with probability 1 − δ there are no such
candidates, whatever the coefficients, if

    m ≥ (24 A² B² / η) [ n r log(1 + 96 A² B L R / η) + 2 n log(1 + 96 A² B² / η) + log(1 / δ) ],

with r = d, or the dimension of a subspace that the data are known to lie in.

*When η > 0.* On compact sets η is attained, so it is positive where L = 0 means close. For an activation that is no
polynomial, features of points that differ (up to sign, where σ is even, odd or linear plus even) are linearly
independent; so the samples have to be apart, and no coefficient may be 0: without the margin two samples could be
merged, without a a sample could be left out.
"""

import math
from dataclasses import dataclass

from exhume.errors import UsageError

ASSUMPTIONS = (
    "the rows w_k are independent, all of one distribution, and known, with ||w_k|| <= R",
    "the activation is no polynomial, is bounded by B on |z| <= R and has slopes of at most L (ReLU: B = R, L = 1)",
    "samples and candidates have norm 1, there are as many candidates as samples, and the samples are apart, by a "
    "margin that eta takes into account, and do not depend on the rows",
    "the coefficients of both have absolute values that add up to at most A, and those of the samples are bounded "
    "below; they may depend on the rows, as trained ones do",
    "eta is the infimum of the infinite-width loss over all such coefficients and all candidates that are not close to "
    "the data; it is 0 for even and odd activations unless closeness is up to sign",
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
        """The logarithm of the number of choices of candidates and coefficients that stand for all of them."""
        moves = 96 * self.coefficient_sum**2 * self.activation_bound * self.lipschitz * self.row_norm / self.separation
        return self.samples * (self.dimension * math.log1p(moves) + 2 * math.log1p(96 * self._scale / self.separation))

    @property
    def width(self) -> int:
        """m: at this width and above, the data are determined with probability 1 − δ.

        >>> WidthBound(samples=1, dimension=2, separation=0.3).width
        2087
        """
        return math.ceil(24 * self._scale / self.separation * (self.cover - math.log(self.failure_rate)))

    def explain(self) -> list[str]:
        return [
            f"A width of {self.width:,} is enough: with probability {1 - self.failure_rate:g} the weights then "
            f"determine {self.samples} samples in {self.dimension} dimensions, up to the closeness that eta = "
            f"{self.separation:g} stands for.",
            "The bound is derived here, and sufficient, not necessary: attacks succeed at widths of about r n, far "
            "below it.",
            *(f"It assumes that {assumption}." for assumption in ASSUMPTIONS),
        ]
