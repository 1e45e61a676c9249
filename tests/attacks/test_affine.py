import numpy as np
import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.single_layer.affine import AffinePart
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold

D, P = 6, 150


class SmallBlocks(HeldRows):
    """Held rows in blocks of 32, so that every sum runs over several of them."""

    @property
    def block_rows(self) -> int:
        return 32


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def candidates_of(m: int, seed: int = 2) -> Tensor:
    rows = normal(m, D, seed=seed)
    return rows * (D**0.5 / rows.norm(dim=1, keepdim=True))


def affine_loss(
    name: str = "relu", k: int = 1, bias: bool = False, rows: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> SpanLoss:
    rows = hold(DrawnRows(4, P, D), dtype=torch.float64).values if rows is None else rows
    shift = 0.5 * normal(len(rows), seed=9) if bias else None
    features = RidgeFeatures(SmallBlocks(rows.to(dtype)), activation(name), shift)
    return SpanLoss(features, normal(k, len(rows), seed=1), dtype).part(len(rows), affine=True)


def dense_columns(loss: SpanLoss) -> Tensor:
    """W = [V, 1, |v|, (b)], written down."""
    rows = loss.features.rows.block(0, loss.features.p).double()
    columns = [rows, torch.ones(len(rows), 1, dtype=torch.float64), rows.norm(dim=1, keepdim=True)]
    if loss.features.bias is not None:
        columns.append(loss.features.bias[:, None])
    return torch.cat(columns, dim=1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", ["relu", "tanh", "softplus"])
def test_the_fit_is_dense_least_squares_on_features_and_affine_columns_together(name: str, k: int, bias: bool) -> None:
    loss, candidates = affine_loss(name, k, bias), candidates_of(4)
    fit = loss.fit(candidates)
    dense = torch.cat([loss.features(candidates).T, dense_columns(loss)], dim=1).numpy()
    target = loss.weights.numpy().T
    solution = np.linalg.lstsq(dense, target, rcond=1e-12)[0]
    residual = (target - dense @ solution).T
    np.testing.assert_allclose(fit.residual.numpy(), residual, atol=1e-10)
    np.testing.assert_allclose(fit.coefficients.numpy(), solution[:4], atol=1e-8)
    assert fit.loss == pytest.approx((residual**2).sum() / (target**2).sum(), rel=1e-10)


@pytest.mark.parametrize("bias", [False, True])
def test_projecting_any_vectors_is_the_dense_projection(bias: bool) -> None:
    loss, candidates, values = affine_loss("gelu", 2, bias), candidates_of(3), normal(2, P, seed=7)
    left, coefficients = loss.project(loss.fit(candidates), values)
    dense = torch.cat([loss.features(candidates).T, dense_columns(loss)], dim=1).numpy()
    solution = np.linalg.lstsq(dense, values.numpy().T, rcond=1e-12)[0]
    np.testing.assert_allclose(left.numpy(), (values.numpy().T - dense @ solution).T, atol=1e-10)
    np.testing.assert_allclose(coefficients.numpy(), solution[:3], atol=1e-8)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_the_bare_residual_is_orthogonal_to_the_affine_columns_and_is_all_but_them(k: int, bias: bool) -> None:
    loss = affine_loss("relu", k, bias)
    bare, columns = loss.bare_residual(), dense_columns(loss)
    assert (bare @ columns).abs().max() < 1e-10
    explained = (loss.weights - bare).numpy().T
    solution = np.linalg.lstsq(columns.numpy(), explained, rcond=1e-12)[0]
    np.testing.assert_allclose(columns.numpy() @ solution, explained, atol=1e-10)


def test_without_an_affine_part_the_bare_residual_is_the_weights() -> None:
    loss = affine_loss().part(P)
    assert torch.equal(loss.bare_residual(), loss.weights)


def test_products_times_and_combine_are_those_with_the_dense_columns() -> None:
    loss = affine_loss(bias=True)
    assert loss.affine is not None
    columns, values, slopes = dense_columns(loss), normal(3, P, seed=5), normal(D + 3, 2, seed=6)
    torch.testing.assert_close(loss.affine.products(values), columns.T @ values.T)
    torch.testing.assert_close(loss.affine.times(values[:, 32:64], slice(32, 64)), values[:, 32:64] @ columns[32:64])
    torch.testing.assert_close(loss.affine.combine(slopes), (columns @ slopes).T)


def test_a_linear_activation_is_explained_by_the_affine_part_alone() -> None:
    loss = affine_loss()
    samples = candidates_of(3)
    weights = normal(2, 3, seed=3) @ RidgeFeatures(loss.features.rows, activation("linear"))(samples) + 5.0
    bare = SpanLoss(loss.features, weights, torch.float64).part(P, affine=True).bare_residual()
    assert bare.abs().max() < 1e-12


HARD_ROWS = {
    "fewer rows than columns": normal(D - 2, D, seed=4),
    "as many rows as columns": normal(D + 2, D, seed=4),
    "duplicate rows": normal(10, D, seed=4).repeat(5, 1),
    "dead rows": torch.cat([torch.zeros(40, D, dtype=torch.float64), normal(40, D, seed=4)]),
    "dead rows only but one": torch.cat([torch.zeros(40, D, dtype=torch.float64), normal(1, D, seed=4)]),
    "a column that is zero": normal(60, D, seed=4) * torch.tensor([1.0] * (D - 1) + [0.0], dtype=torch.float64),
    "rows in a plane": normal(60, 2, seed=4) @ normal(2, D, seed=5),
    "rows of one length": torch.nn.functional.normalize(normal(60, D, seed=4), dim=1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", HARD_ROWS)
def test_columns_that_depend_on_each_other_leave_the_right_residual(case: str, dtype: torch.dtype) -> None:
    loss = affine_loss("tanh", k=2, rows=HARD_ROWS[case], dtype=dtype)
    columns = dense_columns(loss).numpy()
    target = loss.weights.double().numpy().T
    expected = target - columns @ np.linalg.lstsq(columns, target, rcond=1e-6)[0]
    tolerance = 1e-4 if dtype == torch.float32 else 1e-9
    np.testing.assert_allclose(loss.bare_residual().double().numpy().T, expected, atol=tolerance)
    fit = loss.fit(candidates_of(3).to(dtype))
    for tensor in (fit.coefficients, fit.residual, fit.gram_inverse):
        assert torch.isfinite(tensor).all()
    assert 0 <= fit.loss <= float((expected**2).sum() / (target**2).sum()) + tolerance


def test_making_the_affine_part_is_one_pass_and_no_copy_of_the_rows() -> None:
    loss = affine_loss()
    assert loss.passes == 1
    part = AffinePart(loss.features, loss.weights)
    assert part.others.shape == (P, 2)
    assert part.inverse.shape == (D + 2, D + 2)
