"""The loss with a prior against twins that keep every equation of the enlarged system as a row of a matrix."""

from itertools import pairwise

import pytest
import torch

from exhume.activations import activation
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.foundation.retraction import tangent, to_norm
from exhume.attacks.prior.loss import PriorLoss
from exhume.attacks.prior.newton import PriorNewton
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows

P, R, M = 60, 6, 4


def problem(name: str = "relu", outputs: int = 1, bias: bool = False) -> tuple[RidgeFeatures, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(P, R, generator=generator, dtype=torch.float64) / R**0.5
    shift = torch.randn(P, generator=generator, dtype=torch.float64) if bias else None
    weights = torch.randn(outputs, P, generator=generator, dtype=torch.float64)
    return RidgeFeatures(HeldRows(rows), activation(name), shift), weights


def start(m: int = M) -> torch.Tensor:
    rows = torch.randn(m, R, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return to_norm(rows, R**0.5)


PENALTIES = torch.tensor([0.1, 0.3, 1.0, 2.0, 5.0, 20.0], dtype=torch.float64)


def enlarged(features: RidgeFeatures, candidates: torch.Tensor) -> torch.Tensor:
    """m × (p + m r): the features, and one slot of prior equations for each candidate."""
    m = len(candidates)
    slots = torch.zeros(m, m, R, dtype=torch.float64)
    for index, row in enumerate(candidates):
        slots[index, index] = PENALTIES.sqrt() * row
    with torch.no_grad():
        return torch.cat([features(candidates), slots.flatten(start_dim=1)], dim=1)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_the_objective_is_that_of_the_enlarged_least_squares(outputs: int, bias: bool) -> None:
    features, weights = problem("tanh", outputs, bias)
    fit = PriorLoss(features, weights, PENALTIES).fit(start())
    matrix = enlarged(features, start())
    targets = torch.cat([weights, torch.zeros(outputs, M * R, dtype=torch.float64)], dim=1)
    coefficients = torch.linalg.lstsq(matrix.T, targets.T).solution
    left = targets - coefficients.T @ matrix
    torch.testing.assert_close(fit.coefficients, coefficients)
    torch.testing.assert_close(fit.residual, left[:, :P])
    assert fit.objective == pytest.approx(float(left.square().sum() / weights.square().sum()))
    assert fit.loss == pytest.approx(float(left[:, :P].square().sum() / weights.square().sum()))


@pytest.mark.parametrize("name", ["tanh", "gelu"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_descent_is_the_gradient_of_the_objective(name: str, outputs: int) -> None:
    features, weights = problem(name, outputs)
    loss = PriorLoss(features, weights, PENALTIES)
    model = loss.linearise(loss.fit(start()))
    direction = tangent(torch.randn(M, R, generator=torch.Generator().manual_seed(5), dtype=torch.float64), start())
    step = 1e-5
    ahead, behind = (loss.fit(start() + sign * step * direction).objective for sign in (1, -1))
    slope = (ahead - behind) / (2 * step) * loss.energy
    assert slope == pytest.approx(-2 * float((model.descent * direction).sum()), rel=1e-5)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_curvature_is_that_of_the_enlarged_system_across_its_features(outputs: int) -> None:
    features, weights = problem("tanh", outputs)
    loss = PriorLoss(features, weights, PENALTIES)
    fit = loss.fit(start())
    model = loss.linearise(fit)
    directions = tangent(torch.randn(M, R, generator=torch.Generator().manual_seed(6), dtype=torch.float64), start())
    moved = torch.zeros(outputs, P + M * R, dtype=torch.float64)
    rows = features.rows.block(0, P)
    slopes = features.activation.derivative(start() @ rows.T)
    for output in range(outputs):
        for index in range(M):
            size = float(fit.coefficients[index, output])
            moved[output, :P] += size * slopes[index] * (rows @ directions[index])
            place = P + index * R
            moved[output, place : place + R] += size * PENALTIES.sqrt() * directions[index]
    matrix = enlarged(features, start())
    across = moved - moved @ torch.linalg.pinv(matrix) @ matrix
    quadratic = float((directions * loss.curve(model, directions)).sum())
    assert quadratic == pytest.approx(float(across.square().sum()))


def test_without_a_prior_it_is_the_projected_loss() -> None:
    features, weights = problem("relu")
    scaled = weights / weights.square().mean().sqrt()
    fit = PriorLoss(features, scaled, torch.zeros(R, dtype=torch.float64)).fit(start())
    published = SpanLoss(features, weights, torch.float64).fit(start())
    assert fit.objective == fit.loss == pytest.approx(published.loss)
    torch.testing.assert_close(fit.coefficients, published.coefficients)


def test_an_infinite_variance_is_no_prior() -> None:
    features, weights = problem("relu")
    without = PriorLoss(features, weights, torch.zeros(R, dtype=torch.float64)).fit(start())
    wide = PriorLoss(features, weights, 1 / torch.full((R,), torch.inf, dtype=torch.float64)).fit(start())
    assert wide.objective == without.objective


def test_with_linear_features_the_minimum_is_ridge_regression() -> None:
    """θ_k = v_k·Σ_i α_i x_i: one candidate is any vector y, and J = ||θ − V y||² + Σ_j λ_j y_j²."""
    features, weights = problem("linear")
    loss = PriorLoss(features, weights, PENALTIES)
    *_, fit = PriorNewton(products=20, forcing=1e-6, stall=60).refine(loss, loss.fit(start(1)), R**0.5, 60)
    rows = features.rows.block(0, P)
    ridge = torch.linalg.solve(rows.T @ rows + torch.diag(PENALTIES), rows.T @ weights[0])
    torch.testing.assert_close(fit.coefficients[0, 0] * fit.candidates[0], ridge, rtol=1e-4, atol=1e-6)


def test_a_heavy_prior_leaves_nothing_but_the_cheapest_direction() -> None:
    features, weights = problem("relu")
    loss = PriorLoss(features, weights, 1e4 * PENALTIES)
    fit = loss.fit(start())
    assert fit.loss > 0.99
    assert float(fit.coefficients.abs().max()) < 1e-2


def test_removing_a_candidate_costs_what_the_formula_says() -> None:
    features, weights = problem("relu", outputs=2)
    loss = PriorLoss(features, weights, PENALTIES)
    fit = loss.fit(start())
    costs = removal_costs(fit, loss)
    for index in range(M):
        kept = torch.arange(M) != index
        assert loss.fit(start()[kept]).objective - fit.objective == pytest.approx(float(costs[index]))


def test_refinement_never_raises_the_objective_and_ends_at_a_stationary_point() -> None:
    features, weights = problem("gelu")
    loss = PriorLoss(features, weights, PENALTIES)
    fits = list(PriorNewton(products=30, forcing=1e-4, stall=200).refine(loss, loss.fit(start()), R**0.5, 80))
    assert all(later.objective <= earlier.objective for earlier, later in pairwise(fits))
    fit = fits[-1]
    assert float(loss.linearise(fit).descent.norm()) < 1e-3
    torch.testing.assert_close(fit.candidates.norm(dim=1), torch.full((M,), R**0.5, dtype=torch.float64))
