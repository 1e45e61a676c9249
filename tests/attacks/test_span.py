import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import ACTIVATIONS, activation
from exhume.attacks.foundation.projection import invert_gram
from exhume.attacks.single_layer.span import SpanLoss
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold
from exhume.observation import Knowledge, Observation

D, P = 9, 210


class SmallBlocks(HeldRows):
    """Held rows in blocks of 32, so that every sum runs over several of them."""

    @property
    def block_rows(self) -> int:
        return 32


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def features_of(name: str, *, p: int = P, bias: bool = False) -> RidgeFeatures:
    rows = SmallBlocks(hold(DrawnRows(4, p, D), dtype=torch.float64).values)
    return RidgeFeatures(rows, activation(name), 0.5 * normal(p, seed=9) if bias else None)


def loss_of(
    name: str, *, k: int = 1, p: int = P, bias: bool = False, scale: float = 1.0, dtype: torch.dtype = torch.float64
) -> SpanLoss:
    return SpanLoss(features_of(name, p=p, bias=bias), scale * normal(k, p, seed=1), dtype)


def candidates_of(m: int, seed: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    rows = normal(m, D, seed=seed)
    return (rows * (D**0.5 / rows.norm(dim=1, keepdim=True))).to(dtype)


def dense_features(features: RidgeFeatures, candidates: Tensor) -> Tensor:
    preactivations = candidates @ features.rows.block(0, features.p).double().T
    return features.activation.value(preactivations if features.bias is None else preactivations + features.bias)


def naive_loss(features: Tensor, weights: Tensor) -> float:
    """||θ − P θ||² / ||θ||² with numpy's own least squares."""
    dense, targets = features.numpy().T, weights.numpy().T
    solution = np.linalg.lstsq(dense, targets, rcond=1e-7)[0]
    return float(((targets - dense @ solution) ** 2).sum() / (targets**2).sum())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", ACTIVATIONS.names())
def test_the_fit_is_the_projection_of_least_squares(name: str, k: int, bias: bool) -> None:
    loss, candidates = loss_of(name, k=k, bias=bias, scale=3.0), candidates_of(5)
    fit = loss.fit(candidates)
    dense, weights = dense_features(loss.features, candidates), 3.0 * normal(k, P, seed=1)
    assert fit.loss == pytest.approx(naive_loss(dense, weights), rel=1e-10)
    expected = np.linalg.lstsq(dense.numpy().T, weights.numpy().T, rcond=None)[0]
    np.testing.assert_allclose((fit.coefficients * loss.scale).numpy(), expected, rtol=1e-6, atol=1e-9)
    residual = weights.numpy() - expected.T @ dense.numpy()
    np.testing.assert_allclose((fit.residual * loss.scale).numpy(), residual, atol=1e-8)
    torch.testing.assert_close(fit.gram, dense @ dense.T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 3])
def test_duplicate_candidates_change_neither_the_loss_nor_the_size_of_the_coefficients(
    k: int, dtype: torch.dtype
) -> None:
    loss, candidates = loss_of("relu", k=k, dtype=dtype), candidates_of(4, dtype=dtype)
    once = loss.fit(candidates)
    twice = loss.fit(torch.cat([candidates, candidates[:3], candidates[:1]]))
    assert twice.loss == pytest.approx(once.loss, rel=1e-5 if dtype == torch.float32 else 1e-12)
    assert twice.coefficients.abs().max() <= once.coefficients.abs().max() * 1.001
    assert torch.isfinite(loss.gradient(twice)).all()


def test_nearly_equal_candidates_have_finite_coefficients_and_the_right_loss() -> None:
    loss, candidates = loss_of("gelu"), candidates_of(3)
    for distance in (1e-3, 1e-6, 1e-9, 1e-12):
        near = torch.cat([candidates, candidates[:1] + distance * normal(1, D, seed=8)])
        fit = loss.fit(near)
        assert torch.isfinite(fit.coefficients).all()
        assert (
            loss.fit(candidates).loss + 1e-12
            >= fit.loss
            >= naive_loss(dense_features(loss.features, near), loss.weights) - 1e-9
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_more_candidates_than_weights_fit_them_all_with_finite_coefficients(name: str, dtype: torch.dtype) -> None:
    loss = loss_of(name, p=12, k=2, dtype=dtype)
    fit = loss.fit(candidates_of(40, dtype=dtype))
    assert fit.loss < (1e-9 if dtype == torch.float32 else 1e-20)
    assert fit.coefficients.abs().max() < 1e3
    assert torch.isfinite(loss.gradient(fit)).all()


def test_candidates_without_any_active_feature_explain_nothing() -> None:
    rows = HeldRows(torch.ones(20, D, dtype=torch.float64))
    loss = SpanLoss(RidgeFeatures(rows, activation("relu")), normal(1, 20, seed=0), torch.float64)
    fit = loss.fit(-torch.ones(3, D, dtype=torch.float64))
    assert fit.loss == pytest.approx(1, abs=1e-14)
    assert fit.coefficients.abs().max() == 0
    assert loss.gradient(fit).abs().max() == 0


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(1, 3), st.sampled_from(ACTIVATIONS.names()), st.integers(0, 1000))
def test_the_loss_is_between_0_and_1_and_falls_with_more_candidates(m: int, k: int, name: str, seed: int) -> None:
    for dtype in (torch.float32, torch.float64):
        loss, candidates = loss_of(name, k=k, dtype=dtype), candidates_of(m + 1, seed, dtype)
        more, fewer = loss.fit(candidates).loss, loss.fit(candidates[:-1]).loss
        assert 0 <= more <= fewer + 1e-5
        assert fewer <= 1 + 1e-6


def differentiable_loss(features: RidgeFeatures, weights: Tensor, candidates: Tensor) -> Tensor:
    """The projected loss written with an orthonormal basis, for torch's own gradient."""
    basis = torch.linalg.qr(dense_features(features, candidates).T).Q
    residual = weights - weights @ basis @ basis.T
    return residual.square().sum() / weights.square().sum()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", ACTIVATIONS.names())
def test_the_gradient_is_the_one_of_autograd_through_the_projection(name: str, k: int, bias: bool) -> None:
    loss = loss_of(name, k=k, bias=bias, scale=7.0)
    candidates = candidates_of(5)
    variable = candidates.clone().requires_grad_()
    (expected,) = torch.autograd.grad(differentiable_loss(loss.features, normal(k, P, seed=1), variable), variable)
    torch.testing.assert_close(loss.gradient(loss.fit(candidates)), expected, atol=1e-11, rtol=1e-8)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS.names())
def test_the_gradient_is_the_one_of_central_differences(name: str, bias: bool) -> None:
    loss, candidates, step = loss_of(name, k=2, bias=bias), candidates_of(3), 1e-6
    fit = loss.fit(candidates)
    assert fit.preactivations.abs().min() > 20 * step, "no kink of ReLU within the step"
    gradient = loss.gradient(fit)
    for i, j in ((0, 0), (1, 4), (2, D - 1)):
        move = torch.zeros_like(candidates)
        move[i, j] = step
        slope = (loss.fit(candidates + move).loss - loss.fit(candidates - move).loss) / (2 * step)
        assert float(gradient[i, j]) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("exponent", [-30, -20, -7, 7, 20, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_scale_of_the_weights_changes_neither_loss_nor_gradient(exponent: int, dtype: torch.dtype) -> None:
    features, candidates = features_of("relu", bias=True), candidates_of(4, dtype=dtype)
    weights = normal(2, P, seed=1).to(dtype)
    scaled = (weights.double() * 10.0**exponent).to(dtype)
    plain, other = SpanLoss(features, weights, dtype), SpanLoss(features, scaled, dtype)
    fit, same = plain.fit(candidates), other.fit(candidates)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert same.loss == pytest.approx(fit.loss, rel=tolerance)
    torch.testing.assert_close(other.gradient(same), plain.gradient(fit), atol=tolerance, rtol=tolerance)
    expected = fit.coefficients * plain.scale * 10.0**exponent
    torch.testing.assert_close(same.coefficients * other.scale / expected, torch.ones_like(expected), atol=1e-3, rtol=0)


def test_the_scale_of_a_candidate_does_not_change_the_loss_of_a_homogeneous_activation() -> None:
    loss, candidates = loss_of("relu"), candidates_of(4)
    lengths = torch.tensor([1e-8, 1.0, 1e5, 1e8], dtype=torch.float64)
    assert loss.fit(candidates * lengths[:, None]).loss == pytest.approx(loss.fit(candidates).loss, rel=1e-9)


@settings(max_examples=20)
@given(st.permutations(range(6)), st.sampled_from(["relu", "tanh", "gelu"]))
def test_reordering_the_candidates_reorders_everything(order: list[int], name: str) -> None:
    loss, candidates = loss_of(name, k=2, bias=True), candidates_of(6)
    fit, reordered = loss.fit(candidates), loss.fit(candidates[order])
    assert reordered.loss == pytest.approx(fit.loss, rel=1e-12)
    torch.testing.assert_close(reordered.coefficients, fit.coefficients[order])
    torch.testing.assert_close(loss.gradient(reordered), loss.gradient(fit)[order], atol=1e-12, rtol=1e-7)


def test_reordering_the_rows_changes_nothing() -> None:
    loss, order, candidates = (
        loss_of("relu"),
        torch.randperm(P, generator=torch.Generator().manual_seed(0)),
        candidates_of(4),
    )
    rows = HeldRows(loss.features.rows.block(0, P)[order])
    shuffled = SpanLoss(RidgeFeatures(rows, activation("relu")), loss.weights[:, order], torch.float64)
    fit, same = loss.fit(candidates), shuffled.fit(candidates)
    assert same.loss == pytest.approx(fit.loss, rel=1e-12)
    torch.testing.assert_close(shuffled.gradient(same), loss.gradient(fit))


def test_the_surrogate_gives_inactive_features_a_slope_and_leaves_the_active_ones() -> None:
    loss, candidates = loss_of("relu", k=2), candidates_of(4)
    fit = loss.fit(candidates)
    rows = loss.features.rows.block(0, P)
    slopes = torch.where(candidates @ rows.T > 0, 1.0, 0.02)
    expected = -2 / loss.energy * (slopes * (fit.coefficients @ fit.residual)) @ rows
    torch.testing.assert_close(loss.gradient(fit, inactive_slope=0.02), expected)
    assert not torch.allclose(loss.gradient(fit), expected)


@pytest.mark.parametrize("shape", [(1, P), (3, P)])
def test_weights_that_are_all_zero_are_refused_in_one_line(shape: tuple[int, int]) -> None:
    with pytest.raises(ExhumeError, match="nothing was learned") as caught:
        SpanLoss(features_of("relu"), torch.zeros(shape))
    assert "\n" not in str(caught.value)


def truth(name: str, n: int, k: int, dtype: torch.dtype) -> tuple[Observation, Tensor, Tensor]:
    samples, coefficients = candidates_of(n, seed=5), normal(n, k, seed=6)
    features = features_of(name, bias=True)
    weights = (coefficients.T @ dense_features(features, samples)).to(dtype)
    return Observation(features, weights, Knowledge(n)), samples.to(dtype), coefficients


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in ACTIVATIONS.names() if name != "linear"])
def test_nothing_is_left_at_the_truth(name: str, dtype: torch.dtype) -> None:
    observation, samples, coefficients = truth(name, 5, 2, dtype)
    loss = SpanLoss(observation.ridge, observation.weights, dtype)
    floor = 1e-9 if dtype == torch.float32 else 1e-20
    fit = loss.fit(samples)
    assert fit.loss < floor
    assert loss.predict_loss(samples, coefficients) < floor
    if dtype == torch.float64:
        torch.testing.assert_close(fit.coefficients * loss.scale, coefficients, atol=1e-6, rtol=0)
        assert loss.gradient(fit).abs().max() < 1e-9


def test_nothing_is_left_at_the_truth_where_features_are_nearly_parallel() -> None:
    samples, features = candidates_of(60, seed=5), features_of("sigmoid", p=2000)
    rounded = RidgeFeatures(HeldRows(features.rows.block(0, 2000).float()), features.activation)
    dense = rounded(samples.float()).double()
    weights = normal(1, 60, seed=6) @ torch.linalg.pinv(dense).T
    assert SpanLoss(rounded, weights.float()).fit(samples.float()).loss < 1e-6


def test_predict_loss_is_its_formula() -> None:
    loss, candidates, coefficients = loss_of("tanh", k=3, scale=5.0), candidates_of(4), normal(4, 3, seed=3)
    weights = 5.0 * normal(3, P, seed=1)
    missed = weights - coefficients.T @ dense_features(loss.features, candidates)
    expected = float(missed.square().sum() / weights.square().sum())
    assert loss.predict_loss(candidates, coefficients) == pytest.approx(expected, rel=1e-10)


def test_predict_loss_at_the_fit_is_the_loss_of_the_fit() -> None:
    loss, candidates = loss_of("relu", k=2), candidates_of(4)
    fit = loss.fit(candidates)
    assert loss.predict_loss(candidates, fit.coefficients * loss.scale) == pytest.approx(fit.loss, rel=1e-10)


def test_a_fit_a_gradient_and_a_prediction_are_one_pass_each() -> None:
    loss, candidates = loss_of("relu"), candidates_of(3)
    assert loss.passes == 0
    fit = loss.fit(candidates)
    assert loss.passes == 1
    loss.gradient(fit)
    assert loss.passes == 2
    loss.predict_loss(candidates, fit.coefficients)
    assert loss.passes == 3


def test_float32_agrees_with_float64() -> None:
    exact, rounded = loss_of("relu", k=2), loss_of("relu", k=2, dtype=torch.float32)
    fit, close = exact.fit(candidates_of(5)), rounded.fit(candidates_of(5, dtype=torch.float32))
    assert close.loss == pytest.approx(fit.loss, rel=1e-5)
    gradient = rounded.gradient(close)
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(gradient.double(), exact.gradient(fit), atol=1e-6, rtol=1e-3)


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 3), st.integers(0, 100))
def test_the_inverse_of_the_gram_matrix_gives_the_least_norm_least_squares_solution(
    m: int, rank: int, k: int, seed: int
) -> None:
    wide = normal(m, min(rank, m), seed=seed)
    rows = wide / wide.norm(dim=1, keepdim=True)  # unit rows: the scaling inside is then the identity
    targets = normal(rows.shape[1], k, seed=seed + 1)
    solved = invert_gram(rows @ rows.T) @ (rows @ targets)
    expected = np.linalg.pinv(rows.numpy().T, rcond=1e-7) @ targets.numpy()
    condition = np.linalg.cond(rows.numpy()) ** 2
    np.testing.assert_allclose(solved.numpy(), expected, atol=1e-12 * condition * max(1.0, abs(expected).max()))


def test_in_another_precision_the_weights_are_those_that_were_published() -> None:
    weights = 1e-3 * normal(2, P, seed=1)
    rounded = SpanLoss(features_of("relu"), weights, torch.float32)
    exact = SpanLoss(features_of("relu"), weights, torch.float64)
    for converted in (rounded.to(torch.float64), rounded.part(P).to(torch.float64)):
        torch.testing.assert_close(converted.weights, exact.weights, atol=1e-14, rtol=0)
        assert converted.energy == pytest.approx(exact.energy, rel=1e-14)
    half = rounded.part(P // 2).to(torch.float64)
    torch.testing.assert_close(half.weights, exact.weights[:, : P // 2], atol=1e-14, rtol=0)
    assert torch.equal(rounded.to(torch.float32).weights, rounded.weights)


def test_a_part_of_the_rows_is_the_loss_on_these_rows_and_counts_as_a_part_of_a_pass() -> None:
    loss, candidates = loss_of("gelu", k=2, bias=True), candidates_of(4)
    part = loss.part(P // 3)
    dense = dense_features(loss.features, candidates)[:, : P // 3]
    assert part.fit(candidates).loss == pytest.approx(naive_loss(dense, loss.weights[:, : P // 3]), rel=1e-10)
    assert loss.passes == part.passes == pytest.approx(1 / 3)


def test_a_part_without_any_weight_has_nothing_left() -> None:
    weights = normal(1, P, seed=1)
    weights[:, :50] = 0
    part = SpanLoss(features_of("relu"), weights, torch.float64).part(50, affine=True)
    fit = part.fit(candidates_of(3))
    assert fit.loss < 1e-20
    assert torch.isfinite(part.gradient(fit)).all()
