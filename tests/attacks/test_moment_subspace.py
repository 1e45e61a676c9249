import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.subspace.moments import moment_subspace, without_affine_part
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

D, N = 12, 2


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def victim(name: str, p: int, outputs: int = 1, d: int = D) -> tuple[SpanLoss, Tensor]:
    features = RidgeFeatures(hold(DrawnRows(1, p, d), dtype=torch.float64), activation(name))
    samples = to_norm(normal(N, d), d**0.5)
    coefficients = normal(outputs, N, seed=2).sign() * (1 + normal(outputs, N, seed=3).abs())
    return SpanLoss(features, coefficients @ features(samples), torch.float64), samples


def captured(basis: Tensor, samples: Tensor) -> float:
    """The least share of a sample's energy inside the subspace."""
    inside = (samples @ basis.to(samples)).square().sum(dim=1)
    return float((inside / samples.square().sum(dim=1)).min())


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_affine_part_is_that_of_a_dense_regression(outputs: int) -> None:
    loss, _ = victim("relu", 300, outputs)
    rows = loss.features.rows.block(0, 300)
    columns = torch.cat([rows, torch.ones(300, 1, dtype=torch.float64)], dim=1)
    dense = loss.weights.T - columns @ torch.linalg.lstsq(columns, loss.weights.T).solution
    torch.testing.assert_close(without_affine_part(loss), dense.T, atol=1e-5, rtol=0)


@pytest.mark.parametrize("outputs", [1, 3])
def test_directions_are_the_leading_ones_of_the_dense_moments(outputs: int) -> None:
    loss, _ = victim("relu", 3000, outputs)
    rows = loss.features.rows.block(0, 3000) * D**0.5
    squares = torch.zeros(D, D, dtype=torch.float64)
    for output in without_affine_part(loss):
        moment = (rows.T * output) @ rows / 3000
        squares += moment @ moment
    dense = torch.linalg.eigh(squares).eigenvectors[:, -N:]
    found = moment_subspace(loss, N, torch.Generator().manual_seed(0)).basis
    assert float(torch.linalg.matrix_norm(dense - found @ (found.T @ dense), 2)) < 0.05


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_second_moments_find_the_span(name: str) -> None:
    loss, samples = victim(name, 20_000)
    assert captured(moment_subspace(loss, N + 2, torch.Generator().manual_seed(0)).basis, samples) > 0.9


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_activations_need_third_moments_and_many_more_weights(name: str) -> None:
    loss, samples = victim(name, 60_000, d=6)
    assert captured(moment_subspace(loss, N + 1, torch.Generator().manual_seed(0)).basis, samples) > 0.9


def test_there_are_no_more_directions_than_dimensions() -> None:
    loss, _ = victim("relu", 300)
    assert moment_subspace(loss, 10 * D, torch.Generator().manual_seed(0)).r == D
