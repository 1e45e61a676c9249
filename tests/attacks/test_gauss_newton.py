import math

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import tangent, to_norm
from exhume.attacks.single_layer.gauss_newton import curve, linearise, mean_square, newton_move
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold

D, M, P = 5, 3, 90
STEP = 1e-6
NAMES = ["relu", "tanh", "gelu", "relu+tanh"]


class SmallBlocks(HeldRows):
    """Held rows in blocks of 32, so that every sum runs over several of them."""

    @property
    def block_rows(self) -> int:
        return 32


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def candidates_of(m: int = M, d: int = D, seed: int = 2) -> Tensor:
    return to_norm(normal(m, d, seed=seed), d**0.5)


def loss_of(name: str, k: int = 1, affine: bool = False, bias: bool = False, p: int = P, d: int = D) -> SpanLoss:
    held = hold(DrawnRows(4, p, d), dtype=torch.float64)
    rows = SmallBlocks(held.values) if p == P else held
    features = RidgeFeatures(rows, activation(name), 0.5 * normal(p, seed=9) if bias else None)
    return SpanLoss(features, normal(k, p, seed=1), torch.float64).part(p, affine)


def dense_basis(loss: SpanLoss, candidates: Tensor) -> Tensor:
    """Orthonormal columns that span the features, and W where it is free."""
    columns = [loss.features(candidates).T]
    if loss.affine is not None:
        rows = loss.features.rows.block(0, loss.features.p)
        columns += [rows, torch.ones(len(rows), 1, dtype=rows.dtype), rows.norm(dim=1, keepdim=True)]
        columns += [] if loss.features.bias is None else [loss.features.bias[:, None]]
    return torch.linalg.qr(torch.cat(columns, dim=1)).Q


def dense_residual(loss: SpanLoss, candidates: Tensor) -> Tensor:
    basis = dense_basis(loss, candidates)
    return loss.weights - loss.weights @ basis @ basis.T


def dense_jacobian(loss: SpanLoss, candidates: Tensor) -> Tensor:
    """Columns of −P_⊥ dr/dx by central differences of the projected residual, (k p) × (m d).

    P_⊥ drops exactly the term of dr that depends on r: it lies in the span.
    """
    basis = dense_basis(loss, candidates)
    columns = []
    for index in range(candidates.numel()):
        move = torch.zeros_like(candidates)
        move.view(-1)[index] = STEP
        slope = (dense_residual(loss, candidates + move) - dense_residual(loss, candidates - move)) / (2 * STEP)
        columns.append(-(slope - slope @ basis @ basis.T).flatten())
    return torch.stack(columns, dim=1)


def tangent_basis(candidates: Tensor) -> Tensor:
    """(m d) × m (d − 1) orthonormal columns: moves that keep every norm to first order."""
    blocks = [torch.linalg.svd(row[None]).Vh[1:].T for row in candidates]
    return torch.block_diag(*blocks)


def naive_metric(loss: SpanLoss, candidates: Tensor, coefficients: Tensor) -> Tensor:
    rows, m = loss.features.rows.block(0, loss.features.p), len(candidates)
    preactivations = candidates @ rows.T + (0 if loss.features.bias is None else loss.features.bias)
    slopes = loss.features.activation.derivative(preactivations)
    variance = rows[: loss.features.rows.block_rows].square().mean()  # a scale: one block tells it
    entries = torch.zeros(m, m, dtype=torch.float64)
    for i in range(m):
        for j in range(m):
            entries[i, j] = (coefficients[i] @ coefficients[j]) * (slopes[i] @ slopes[j]) * variance
    return entries


CASES = [(name, k, affine, bias) for name in NAMES for k in (1, 2) for affine, bias in ((False, True), (True, False))]


@pytest.mark.parametrize(("name", "k", "affine", "bias"), CASES)
def test_curve_is_the_dense_product_with_the_projected_jacobian(name: str, k: int, affine: bool, bias: bool) -> None:
    loss, candidates = loss_of(name, k, affine, bias), candidates_of()
    fit = loss.fit(candidates)
    assert fit.preactivations.abs().min() > 5 * STEP, "no kink of ReLU within the step"
    jacobian = dense_jacobian(loss, candidates)
    model = linearise(loss, fit)
    for seed in range(3):
        directions = normal(M, D, seed=20 + seed)
        expected = (jacobian.T @ (jacobian @ directions.flatten())).view(M, D)
        torch.testing.assert_close(
            curve(loss, model, directions), tangent(expected, candidates), atol=1e-6, rtol=1e-6, msg=f"{seed}"
        )


@pytest.mark.parametrize(("name", "k", "affine", "bias"), CASES)
def test_the_descent_is_the_half_gradient_downhill_on_the_tangent(name: str, k: int, affine: bool, bias: bool) -> None:
    loss, candidates = loss_of(name, k, affine, bias), candidates_of()
    fit = loss.fit(candidates)
    model = linearise(loss, fit)
    expected = tangent(-loss.energy / 2 * loss.gradient(fit), candidates)
    torch.testing.assert_close(model.descent, expected)
    assert (model.descent * candidates).sum(dim=1).abs().max() < 1e-10
    jacobian = dense_jacobian(loss, candidates)
    dense = (jacobian.T @ dense_residual(loss, candidates).flatten()).view(M, D)
    torch.testing.assert_close(model.descent, tangent(dense, candidates), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("damping", [1e-5, 0.3])
@pytest.mark.parametrize(("name", "k", "affine", "bias"), CASES)
def test_a_newton_move_with_many_products_is_the_dense_damped_solution(
    name: str, k: int, affine: bool, bias: bool, damping: float
) -> None:
    loss, candidates = loss_of(name, k, affine, bias), candidates_of()
    fit = loss.fit(candidates)
    move = newton_move(loss, linearise(loss, fit), damping, products=300, forcing=0.0)
    jacobian, basis = dense_jacobian(loss, candidates), tangent_basis(candidates)
    residual = dense_residual(loss, candidates).flatten()
    diagonal = naive_metric(loss, candidates, fit.coefficients).diagonal()
    weight = torch.diag((damping * (diagonal + 1e-6 * diagonal.mean())).repeat_interleave(D))
    square = basis.T @ (jacobian.T @ jacobian + weight) @ basis
    expected = basis @ torch.linalg.solve(square, basis.T @ jacobian.T @ residual)
    error = (move.change.flatten() - expected).norm() / expected.norm()
    assert error < (1e-6 if damping > 0.1 else 1e-5), "differences of step 1e-6 are good to about 1e-9 / smallest H"
    left = residual - jacobian @ move.change.flatten()
    assert move.predicted == pytest.approx(float(residual @ residual - left @ left) / loss.energy, rel=1e-5)


@pytest.mark.parametrize("products", [1, 2, 5])
def test_the_predicted_gain_is_that_of_the_model_also_for_a_truncated_solution(products: int) -> None:
    loss, candidates = loss_of("gelu", 2), candidates_of()
    model = linearise(loss, loss.fit(candidates))
    move = newton_move(loss, model, 0.1, products, forcing=0.0)
    bent = float((move.change * curve(loss, model, move.change)).sum())
    expected = (2 * float((model.descent * move.change).sum()) - bent) / loss.energy
    assert move.predicted == pytest.approx(expected, rel=1e-9)
    assert 0 < move.predicted < loss.fit(candidates).loss


def test_forcing_ends_the_products_early_and_each_product_is_two_passes() -> None:
    loss, candidates = loss_of("tanh"), candidates_of()
    model = linearise(loss, loss.fit(candidates))
    spent = []
    for products, forcing in ((1, 0.0), (4, 0.0), (50, 0.5)):
        before = loss.passes
        newton_move(loss, model, 0.1, products, forcing)
        spent.append(loss.passes - before)
    assert spent[:2] == [2, 8]
    assert 2 <= spent[2] < 20


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_the_metric_is_its_formula(name: str, k: int) -> None:
    loss, candidates = loss_of(name, k, bias=True), candidates_of()
    fit = loss.fit(candidates)
    expected = naive_metric(loss, candidates, fit.coefficients)
    torch.testing.assert_close(linearise(loss, fit).metric, expected)


@pytest.mark.parametrize("p", [800, 12_800])
@pytest.mark.parametrize(("name", "k"), [("relu", 1), ("tanh", 1), ("gelu", 2)])
def test_across_the_span_the_curvature_is_the_metric_within_marchenko_pasturs_spread(name: str, k: int, p: int) -> None:
    """||M^-1/2 H M^-1/2 − I|| is about 2 √q + q, q = m (d − m) / p: checked within a factor 2 both ways."""
    d = 12
    loss, candidates = loss_of(name, k, p=p, d=d), candidates_of(d=d)
    model = linearise(loss, loss.fit(candidates))
    outside = torch.linalg.svd(candidates).Vh[M:]
    moves = torch.eye(M * len(outside), dtype=torch.float64).view(-1, M, len(outside)) @ outside
    curved = torch.stack([(curve(loss, model, move) @ outside.T).flatten() for move in moves])
    values, vectors = torch.linalg.eigh(model.metric)
    root = torch.kron((vectors / values.sqrt()) @ vectors.T, torch.eye(len(outside), dtype=torch.float64))
    spread = float(torch.linalg.matrix_norm(root @ curved @ root - torch.eye(len(root)), 2))
    q = M * (d - M) / p
    assert 0.5 * (2 * math.sqrt(q) + q) < spread < 2 * (2 * math.sqrt(q) + q)


def test_the_tangent_is_orthogonal_to_each_candidate_and_keeps_what_already_was() -> None:
    candidates, directions = candidates_of(), normal(M, D, seed=3)
    projected = tangent(directions, candidates)
    assert (projected * candidates).sum(dim=1).abs().max() < 1e-12
    torch.testing.assert_close(tangent(projected, candidates), projected)
    zero = torch.zeros(1, D, dtype=torch.float64)
    assert torch.equal(tangent(directions[:1], zero), directions[:1])


def test_a_candidate_without_a_coefficient_gets_a_finite_move() -> None:
    loss = loss_of("relu")
    rows = loss.features.rows.block(0, P)
    # the feature of the first candidate is made orthogonal to the weights: its coefficient is 0
    candidates = candidates_of()
    feature = loss.features(candidates)
    others = torch.linalg.qr(feature[1:].T).Q
    fresh = feature[0] - others @ (others.T @ feature[0])
    weights = loss.weights - (loss.weights @ fresh)[:, None] * fresh / (fresh @ fresh)
    silent = SpanLoss(RidgeFeatures(HeldRows(rows), activation("relu")), weights, torch.float64)
    fit = silent.fit(candidates)
    assert fit.coefficients[0].abs().max() < 1e-12
    move = newton_move(silent, linearise(silent, fit), 0.1, 20, 1e-6)
    assert torch.isfinite(move.change).all()
    assert move.predicted > 0


@pytest.mark.parametrize("dead", [0, 32, 50, 89])
def test_the_scale_of_the_rows_is_seen_behind_dead_ones(dead: int) -> None:
    values = hold(DrawnRows(4, P, D), dtype=torch.float64).values.clone()
    values[:dead] = 0
    loss = SpanLoss(RidgeFeatures(SmallBlocks(values), activation("relu")), normal(1, P, seed=1), torch.float64)
    assert 1 / 32 / D / 5 < mean_square(loss) < 3 / D


def test_rows_that_are_all_dead_leave_the_candidates_where_they_are() -> None:
    rows = HeldRows(torch.zeros(P, D, dtype=torch.float64))
    loss = SpanLoss(RidgeFeatures(rows, activation("tanh")), normal(1, P, seed=1), torch.float64)
    move = newton_move(loss, linearise(loss, loss.fit(candidates_of())), 0.1, 5, 0.1)
    assert move.change.abs().max() == 0
    assert move.predicted == 0
