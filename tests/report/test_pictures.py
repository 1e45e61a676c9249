import base64
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from exhume.picture_grid import as_array, from_rows
from exhume.report.pictures import blurred, to_base64_png


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]))
def test_blurring_leaves_at_most_a_sixteenth_of_the_numbers_of_a_picture_of_four_pixels_or_more(
    height: int, width: int, channels: int
) -> None:
    small = blurred(torch.rand(1, channels, height, width))
    assert small.shape[2] <= max(1, height // 4)
    assert small.shape[3] <= max(1, width // 4)
    assert max(small.shape[2:]) <= 6


def test_blurring_keeps_a_constant_picture_and_stays_within_the_range_of_any_other() -> None:
    assert torch.allclose(blurred(torch.full((1, 1, 25, 25), 0.3)), torch.tensor(0.3, dtype=torch.float64))
    noise = torch.rand(2, 3, 16, 12, generator=torch.Generator().manual_seed(0))
    assert noise.min() <= blurred(noise).min() <= blurred(noise).max() <= noise.max()


def test_two_pictures_that_differ_in_fine_detail_only_are_blurred_to_nearly_the_same() -> None:
    board = (torch.arange(24)[:, None] + torch.arange(24)) % 2
    picture = board[None, None].double()
    # Sharp they differ by 1 everywhere.
    assert (blurred(picture) - blurred(1 - picture)).abs().max() < 0.01


@pytest.mark.parametrize("channels", [1, 3])
def test_png_holds_the_pixels_to_eight_bits(channels: int) -> None:
    picture = torch.randint(0, 256, (channels, 5, 4), generator=torch.Generator().manual_seed(1)) / 255
    stored = np.asarray(Image.open(io.BytesIO(base64.b64decode(to_base64_png(picture)))))
    expected = (picture * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(stored.reshape(5, 4, channels), expected)


def test_rows_of_unknown_scale_fill_the_range_and_a_constant_row_does_not_divide_by_zero() -> None:
    pictures = from_rows(torch.tensor([[-3.0, 1.0, 0.0, 5.0], [2.0, 2.0, 2.0, 2.0]]), (1, 2, 2))
    assert pictures[0].flatten().tolist() == [0.0, 0.5, 0.375, 1.0]
    assert pictures[1].isfinite().all()


def test_pictures_of_other_channel_counts_are_shown_as_gray() -> None:
    array = as_array(torch.stack([torch.zeros(2, 2), torch.ones(2, 2)]))
    assert array.shape == (2, 2, 3)
    assert np.all(array == 0.5)
