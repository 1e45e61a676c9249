"""One missing sample among features φ(Vx + b) of which all others are known (Balle et al.).

*What is left for it.* With θ = Σ_i α_i φ(x_i), the part of θ that the known samples do not explain is that of the
missing one. A stationary fit with a penalty tells their coefficients, α_i = −ℓ'(f_i, y_i) / (n λ):

    t = D θ − Σ_{i<n} α_i φ(x_i) = α_n φ(x_n)                 (`remainder`, in closed form)

Without labels, or at exact interpolation where that reads 0 = 0, the known features are projected out of both sides,
P_⊥ θ = α_n P_⊥ φ(x_n): one unknown sample in p − n + 1 equations. No label is needed for it.

*From φ(x_n) to x_n.* A linear φ, and ReLU on the rows where t is not zero, give linear equations v_k·(α x) + b_k α =
t_k: solved by least squares, exactly. For everything else, and after it, Gauss-Newton from the linear part of t (the
regression of t on V): with c = φ' at the candidate and all known features and φ(x̂) itself projected out, the step
solves min ||r − P_⊥ α diag(c) V dx||² by conjugate gradients, two passes a product.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import conjugate_gradients
from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.features.ridge import RidgeFeatures
from exhume.known import Known

ACTIVE = 1e-6  # of the largest: below it a feature of the missing sample is zero up to rounding
PRODUCTS = 400  # of conjugate gradients
SOLVED = 1e-11  # the residual of the normal equations, over its start, where the solution is the result
LOOSE = 0.05  # the same for a step far from the solution; nearer to it the root of the loss, so that steps still pay


def remainder(
    features: RidgeFeatures, weights: Float[Tensor, "1 p"], known: Known, samples: int
) -> Float[Tensor, " p"]:
    """t = α_n φ(x_n) of a stationary fit of n `samples`. One pass."""
    assert known.penalty is not None, "asked where the fit is known"
    theta = weights[0].double()
    mapped = features(known.inputs.double())
    coefficients = -known.slopes(mapped @ theta) / (samples * known.penalty)
    penalised = theta.clone()
    if known.intercept:
        penalised[-1] = 0
    return penalised - coefficients @ mapped


def solve_linear(features: RidgeFeatures, target: Float[Tensor, " p"], rows: Bool[Tensor, " p"]) -> Float[Tensor, " d"]:
    """x from α (v_k·x + b_k) = t_k on some rows, in the least-squares sense; up to its norm without a bias."""
    weighed = rows.double()
    bias = None if features.bias is None else features.bias.double() * weighed

    def forward(unknown: Tensor) -> Tensor:
        reached = features.products(unknown[None, : features.d])[0] * weighed
        return reached if bias is None else reached + unknown[features.d] * bias

    def backward(values: Tensor) -> Tensor:
        pulled = _pull(features, values * weighed)
        return pulled if bias is None else torch.cat([pulled, (values @ bias)[None]])

    found = least_squares(forward, backward, target * weighed)
    return found if bias is None else found[: features.d] / found[features.d]


@dataclass(frozen=True, eq=False, repr=False)
class SampleGuess:
    """A candidate x̂ with the coefficient that suits it, and what both leave of the target."""

    candidate: Float[Tensor, " d"]
    coefficient: float
    slopes: Float[Tensor, " p"]
    direction: Float[Tensor, " p"]
    """P_⊥ φ(x̂), at unit length."""
    residual: Float[Tensor, " p"]
    loss: float


class MissingSample:
    """P_⊥ θ = α P_⊥ φ(x) on some rows, with the known features projected out."""

    def __init__(
        self, features: RidgeFeatures, weights: Float[Tensor, "1 p"], known: Known, counter: PassCounter
    ) -> None:
        self.features, self.counter = features, counter
        self.known, _ = torch.linalg.qr(features(known.inputs.double()).T)
        self.target = self.project(weights[0].double())
        self.energy = float(self.target @ self.target)

    def project(self, values: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        return values - self.known @ (self.known.T @ values)

    def linear_part(self) -> Float[Tensor, " d"]:
        """The regression of the target on V: most of φ(x) − E φ is along v·x."""

        def forward(unknown: Tensor) -> Tensor:
            return self.project(self._products(unknown))

        def backward(values: Tensor) -> Tensor:
            return self._pull(self.project(values))

        return least_squares(forward, backward, self.target, tolerance=LOOSE)

    def guess(self, candidate: Float[Tensor, " d"]) -> SampleGuess:
        """One pass."""
        reached = self._products(candidate)
        if self.features.bias is not None:
            reached = reached + self.features.bias.double()
        mapped = self.project(self.features.activation.value(reached))
        length = float(mapped.norm())
        direction = mapped / max(length, torch.finfo(torch.float64).tiny)
        along = float(direction @ self.target)
        residual = self.target - along * direction
        slopes = self.features.activation.derivative(reached)
        loss = float(residual @ residual) / self.energy
        return SampleGuess(candidate, along / length if length else 0.0, slopes, direction, residual, loss)

    def step(self, guess: SampleGuess, damping: float) -> Float[Tensor, " d"]:
        """The Gauss-Newton step with so many times the mean curvature added. Two passes a product."""

        def project(values: Tensor) -> Tensor:
            left = self.project(values)
            return left - guess.direction * (guess.direction @ left)

        slopes = guess.coefficient * guess.slopes

        def forward(unknown: Tensor) -> Tensor:
            return project(slopes * self._products(unknown))

        def backward(values: Tensor) -> Tensor:
            return self._pull(slopes * project(values))

        rows = self.features.rows.block(0, min(self.features.p, 256)).double()
        curvature = float(slopes.square().sum()) * float(rows.square().mean())
        tolerance = max(SOLVED, min(LOOSE, guess.loss**0.5))
        return least_squares(forward, backward, guess.residual, damping * curvature, tolerance)

    def _products(self, unknown: Float[Tensor, " d"]) -> Float[Tensor, " p"]:
        self.counter.total += self.features.p / self.counter.all_rows
        return self.features.products(unknown[None])[0]

    def _pull(self, values: Float[Tensor, " p"]) -> Float[Tensor, " d"]:
        self.counter.total += self.features.p / self.counter.all_rows
        return _pull(self.features, values)


Product = Callable[[Tensor], Tensor]


def least_squares(
    forward: Product, backward: Product, target: Float[Tensor, " p"], damping: float = 0.0, tolerance: float = SOLVED
) -> Float[Tensor, " c"]:
    """min ||t − J u||² + damping ||u||², by conjugate gradients on the normal equations."""
    return conjugate_gradients(
        lambda direction: backward(forward(direction)) + damping * direction, backward(target), PRODUCTS, tolerance**2
    ).x


def _pull(features: RidgeFeatures, values: Float[Tensor, " p"]) -> Float[Tensor, " d"]:
    return features.pull_back(lambda block: values[None, block], 1, values.dtype, values.device)[0]
