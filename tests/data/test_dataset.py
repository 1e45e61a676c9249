import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.data.dataset import Preparation, downsample, prepare
from exhume.data.image_scales import Norm, Standardise
from exhume.errors import ExhumeError, UsageError


def random_pixels(count: int, channels: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, channels, height, width, generator=generator, dtype=torch.float64)


@settings(deadline=None)
@given(
    standardise=st.sampled_from(get_args(Standardise)),
    norm=st.sampled_from(get_args(Norm)),
    shape=st.tuples(st.integers(2, 4), st.just(3), st.integers(2, 5), st.integers(2, 5)),
    seed=st.integers(0, 2**32),
)
def test_to_pixels_inverts_prepare(
    standardise: Standardise, norm: Norm, shape: tuple[int, int, int, int], seed: int
) -> None:
    pixels = random_pixels(*shape, seed=seed)
    prepared = prepare(pixels, standardise, norm)
    back = prepared.preparation.to_pixels(prepared.rows, prepared.preparation.scale)
    torch.testing.assert_close(back, pixels, atol=1e-10, rtol=0)


@settings(deadline=None)
@given(standardise=st.sampled_from(get_args(Standardise)), seed=st.integers(0, 2**32))
def test_rows_brought_to_the_sphere_have_norm_sqrt_d(standardise: Standardise, seed: int) -> None:
    rows = prepare(random_pixels(3, 3, 4, 5, seed=seed), standardise, "sqrt-d").rows
    torch.testing.assert_close(rows.norm(dim=1), torch.full((3,), math.sqrt(60), dtype=torch.float64))


def test_subset_takes_one_mean_and_one_unbiased_std_over_all_pixels() -> None:
    pixels = random_pixels(3, 3, 4, 4)
    prepared = prepare(pixels, "subset", "keep")
    assert prepared.preparation.mean.tolist() == pytest.approx([pixels.mean().item()] * 3)
    assert prepared.preparation.std.tolist() == pytest.approx([torch.std(pixels).item()] * 3)
    torch.testing.assert_close(prepared.rows, ((pixels - pixels.mean()) / torch.std(pixels)).reshape(3, -1))


def test_channels_takes_the_statistics_of_each_channel() -> None:
    pixels = random_pixels(3, 2, 4, 4)
    pixels[:, 1] *= 0.1
    preparation = prepare(pixels, "channels", "keep").preparation
    for channel in range(2):
        assert preparation.mean[channel].item() == pytest.approx(pixels[:, channel].mean().item())
        assert preparation.std[channel].item() == pytest.approx(pixels[:, channel].std().item())


def test_cifar10_split_takes_the_published_statistics() -> None:
    pixels = random_pixels(1, 3, 1, 2)
    rows = prepare(pixels, "cifar10-split", "keep").rows
    assert rows[0, 0].item() == pytest.approx((pixels[0, 0, 0, 0].item() - 0.4914) / 0.247)
    assert rows[0, 5].item() == pytest.approx((pixels[0, 2, 0, 1].item() - 0.4465) / 0.261)


def test_rows_are_flattened_by_channel_then_height_then_width() -> None:
    pixels = torch.arange(12, dtype=torch.float64).reshape(1, 2, 2, 3) / 12
    assert (prepare(pixels, "none", "keep").rows[0] * 12).tolist() == pytest.approx(list(range(12)))


def test_prepare_keeps_the_precision_it_was_given() -> None:
    prepared = prepare(random_pixels(2, 1, 3, 3).float(), "subset", "sqrt-d")
    assert prepared.rows.dtype == prepared.preparation.mean.dtype == prepared.preparation.scale.dtype == torch.float32


def test_to_pixels_clips_to_the_range_of_an_image() -> None:
    preparation = prepare(random_pixels(1, 1, 1, 2), "none", "keep").preparation
    shown = preparation.to_pixels(torch.tensor([[-3.0, 7.0]]), torch.ones(1))
    assert shown.flatten().tolist() == [0.0, 1.0]


def test_to_pixels_takes_more_rows_than_there_were_images() -> None:
    preparation = prepare(random_pixels(2, 1, 2, 2), "subset", "sqrt-d").preparation
    assert preparation.to_pixels(torch.zeros(5, 4), torch.ones(5)).shape == (5, 1, 2, 2)


def test_synthetic_rows_have_no_pixels() -> None:
    empty = torch.zeros(0)
    preparation = Preparation(empty, empty, torch.ones(1), None, "none", "sqrt-d")
    with pytest.raises(ExhumeError, match="expected rows that came from images, found synthetic rows"):
        preparation.to_pixels(torch.ones(1, 4), torch.ones(1))
    assert preparation.describe() == "rows drawn with norm sqrt(d)"


def test_a_zero_image_is_named_when_it_cannot_reach_the_sphere() -> None:
    pixels = random_pixels(3, 1, 4, 4)
    pixels[1] = 0
    with pytest.raises(ExhumeError, match=r"norm sqrt.*found image 1 constant"):
        prepare(pixels, "none", "sqrt-d")
    assert prepare(pixels, "none", "keep").rows[1].norm() == 0


def test_an_image_constant_at_the_mean_is_named_despite_rounding() -> None:
    half = random_pixels(1, 1, 4, 4)
    middle = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    with pytest.raises(ExhumeError, match="found image 2 constant"):
        prepare(torch.cat([half, 1 - half, middle]), "subset", "sqrt-d")


@pytest.mark.parametrize("standardise", ["subset", "channels"])
@pytest.mark.parametrize("shape", [(2, 1, 3, 3), (1, 1, 1, 1)])
def test_constant_pixels_cannot_be_standardised(standardise: Standardise, shape: tuple[int, ...]) -> None:
    with pytest.raises(ExhumeError, match=r"expected pixels that differ .* found one constant value 0\.3"):
        prepare(torch.full(shape, 0.3, dtype=torch.float64), standardise, "keep")


def test_the_cifar10_statistics_are_refused_for_gray_images() -> None:
    with pytest.raises(UsageError, match=r"expected images of 3 channels .* found 1"):
        prepare(random_pixels(2, 1, 3, 3), "cifar10-split", "keep")


@pytest.mark.parametrize(
    ("standardise", "norm", "words"),
    [
        ("subset", "sqrt-d", "standardised with the subset's mean 0.50 and std 0.53, rows brought to norm sqrt(d)"),
        ("channels", "keep", "standardised per channel with the subset's mean 0.50 and std 0.53, rows keep their norm"),
        ("none", "keep", "pixels kept in [0, 1], rows keep their norm"),
    ],
)
def test_describe_says_what_was_done(standardise: Standardise, norm: Norm, words: str) -> None:
    pixels = torch.tensor([0.0, 1.0] * 4, dtype=torch.float64).reshape(2, 1, 2, 2)
    assert prepare(pixels, standardise, norm).preparation.describe() == words


@settings(deadline=None)
@given(side=st.sampled_from([1, 2, 3, 6]), seed=st.integers(0, 2**32))
def test_downsampling_averages_blocks_like_plain_loops(side: int, seed: int) -> None:
    pixels = random_pixels(2, 2, 6, 12, seed=seed)
    small = downsample(pixels, side)
    tall, wide = 6 // side, 12 // side
    assert small.shape == (2, 2, side, side)
    for row in range(side):
        for column in range(side):
            block = pixels[:, :, row * tall : (row + 1) * tall, column * wide : (column + 1) * wide]
            torch.testing.assert_close(small[:, :, row, column], block.mean(dim=(2, 3)))


@pytest.mark.parametrize("side", [0, -1, 4, 12])
def test_a_side_that_does_not_divide_lists_those_that_do(side: int) -> None:
    with pytest.raises(UsageError, match=rf"expected a side that divides 6x12 images \(1, 2, 3, 6\), found {side}"):
        downsample(random_pixels(1, 1, 6, 12), side)
