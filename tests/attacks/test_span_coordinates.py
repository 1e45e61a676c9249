import pytest
import torch
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.modules.coordinates import Coordinates, SpanCoordinates

SHAPE, D, R = (1, 3, 4), 12, 5


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def subspace() -> Subspace:
    return Subspace(torch.linalg.qr(draw(D, R)).Q)


@pytest.mark.parametrize("norm", [3.0, None])
def test_coordinates_carry_gradients_and_come_back(norm: float | None) -> None:
    coordinates = SpanCoordinates.smooth(norm, subspace(), SHAPE, 1.0)
    z = draw(2, R, seed=1).requires_grad_()
    rows, pulled = coordinates.rows_at(z), draw(2, R, seed=2)
    expected = torch.autograd.grad(rows, z, pulled)[0]
    torch.testing.assert_close(coordinates.gradient_at(z.detach(), pulled), expected)
    back = coordinates.coordinates_of(rows.detach())
    torch.testing.assert_close(coordinates.rows_at(back), rows.detach())


def test_random_coordinates_have_the_covariance_of_projected_smooth_pictures() -> None:
    space = subspace()
    metric = SpanCoordinates.smooth(None, space, SHAPE, 1.0).metric
    pictures = Coordinates.smooth(None, SHAPE, 1.0, space.basis).rows_at(torch.eye(D, dtype=torch.float64))
    projected = space.lower(pictures)
    torch.testing.assert_close(metric @ metric.T, projected.T @ projected, rtol=1e-6, atol=1e-8)


def test_without_pictures_the_metric_is_plain() -> None:
    z = draw(2, R)
    torch.testing.assert_close(SpanCoordinates.plain(None, R, z).rows_at(z), z)
