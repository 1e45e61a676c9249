import math

import pytest
import torch

from exhume.frequencies import (
    cosine_transform,
    frequencies,
    lowest,
    natural_variance,
    resolution_order,
    side_length,
    to_frequencies,
    to_rows,
)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 17])
def test_the_cosine_transform_is_orthonormal_and_is_the_one_that_scipy_has(size: int) -> None:
    from scipy.fft import dct

    transform = cosine_transform(size)
    torch.testing.assert_close(transform @ transform.T, torch.eye(size, dtype=torch.float64))
    naive = torch.from_numpy(dct(torch.eye(size, dtype=torch.float64).numpy(), axis=0, norm="ortho"))
    torch.testing.assert_close(transform, naive)


@pytest.mark.parametrize("shape", [(3, 4, 6), (1, 5, 5), (2, 3, 2)])
def test_the_transform_of_images_keeps_products_and_can_be_undone(shape: tuple[int, int, int]) -> None:
    rows = torch.randn(4, math.prod(shape), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    coordinates = to_frequencies(rows, shape)
    flat = coordinates.flatten(start_dim=1)
    torch.testing.assert_close(flat @ flat.T, rows @ rows.T)
    torch.testing.assert_close(to_rows(coordinates), rows)


def test_a_gray_picture_without_structure_has_one_coordinate() -> None:
    coordinates = to_frequencies(torch.ones(1, 3 * 4 * 4, dtype=torch.float64), (3, 4, 4))
    assert float(coordinates[0, 0, 0, 0]) == pytest.approx(math.sqrt(48))
    assert float(coordinates.flatten()[1:].abs().max()) < 1e-12


def test_the_axes_of_colour_are_brightness_and_two_differences() -> None:
    red = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    red[:, 0] = 1.0
    coordinates = to_frequencies(red.flatten(start_dim=1), (3, 2, 2))[0, :, 0, 0] / 2
    expected = torch.tensor([1 / math.sqrt(3), 1 / math.sqrt(2), 1 / math.sqrt(6)], dtype=torch.float64)
    torch.testing.assert_close(coordinates, expected)


def test_a_resolution_takes_coarse_before_fine_and_brightness_before_colour() -> None:
    shape = (3, 8, 8)
    order, law = resolution_order(shape), natural_variance(shape).flatten()
    assert sorted(order.tolist()) == list(range(192))
    assert bool((law[order].diff() <= 0).all())
    assert float(law.mean()) == pytest.approx(1)
    assert int(order[0]) == 0
    f = frequencies(shape).flatten()
    brightness = [place for place in order.tolist() if place < 64]
    assert bool((f[torch.tensor(brightness)].diff() >= 0).all())


def test_an_image_at_a_resolution_is_its_projection_on_the_first_coordinates() -> None:
    shape = (3, 4, 4)
    rows = torch.randn(2, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    kept = resolution_order(shape)[:7]
    torch.testing.assert_close(lowest(rows, shape, 7), to_frequencies(rows, shape).flatten(start_dim=1)[:, kept])


def test_a_side_length_never_asks_for_more_numbers_than_there_are() -> None:
    for r in range(3, 400):
        assert 3 * side_length(r, 3) ** 2 <= r < 3 * (side_length(r, 3) + 1) ** 2
    assert side_length(1, 3) == 1
