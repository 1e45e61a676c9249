import math

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.errors import ExhumeError, UsageError
from exhume.metrics.images import PSNR_CAP, chance_image_scores, image_scores

laws = settings(deadline=None, max_examples=15)
seeds = st.integers(0, 2**31)


def random_images(seed: int, n: int, side: int = 8) -> Tensor:
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_psnr_of_a_constant_offset_has_its_closed_form() -> None:
    truth = torch.full((2, 1, 8, 8), 0.5)
    scores = image_scores(truth, truth + torch.tensor([0.1, 0.01])[:, None, None, None])
    assert scores.psnr.tolist() == pytest.approx([20, 40], abs=1e-3)
    assert scores.mean_psnr == pytest.approx(30, abs=1e-3)


def test_ssim_of_constant_images_has_its_closed_form() -> None:
    a, b, c1 = 0.25, 0.75, 0.01**2
    found = image_scores(torch.full((1, 1, 8, 8), a), torch.full((1, 1, 8, 8), b)).mean_ssim
    assert found == pytest.approx((2 * a * b + c1) / (a**2 + b**2 + c1))


def test_ssim_of_a_single_window_has_its_closed_form() -> None:
    x, y = (random_images(seed, 1, side=3)[:, :1] for seed in (0, 1))
    a, b = x.flatten().numpy(), y.flatten().numpy()
    cov = np.cov(a, b)
    c1, c2 = 0.01**2, 0.03**2
    expected = (2 * a.mean() * b.mean() + c1) * (2 * cov[0, 1] + c2)
    expected /= (a.mean() ** 2 + b.mean() ** 2 + c1) * (cov[0, 0] + cov[1, 1] + c2)
    assert image_scores(x, y).mean_ssim == pytest.approx(expected)


@laws
@given(seeds, st.integers(1, 4), st.integers(3, 9))
def test_equal_images_score_best_and_the_mean_stays_finite(seed: int, n: int, side: int) -> None:
    truth = random_images(seed, n, side)
    scores = image_scores(truth, truth)
    assert scores.psnr.tolist() == [math.inf] * n
    assert scores.mean_psnr == PSNR_CAP
    assert scores.ssim.tolist() == pytest.approx([1.0] * n)


@laws
@given(seeds, st.integers(1, 4))
def test_scores_are_symmetric_and_follow_the_order_of_the_pairs(seed: int, n: int) -> None:
    truth, found = random_images(seed, 2 * n).split(n)
    scores, exchanged, reversed_ = (
        image_scores(truth, found),
        image_scores(found, truth),
        image_scores(truth.flip(0), found.flip(0)),
    )
    for one, other, third in (
        (scores.psnr, exchanged.psnr, reversed_.psnr),
        (scores.ssim, exchanged.ssim, reversed_.ssim),
    ):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one, third.flip(0))


@laws
@given(seeds)
def test_more_noise_scores_lower(seed: int) -> None:
    truth = 0.25 + random_images(seed, 1) / 2
    noise = random_images(seed + 1, 1) - 0.5
    little, much = image_scores(truth, truth + 0.02 * noise), image_scores(truth, truth + 0.4 * noise)
    assert little.mean_psnr > much.mean_psnr
    assert little.mean_ssim > much.mean_ssim


def test_one_perfect_image_does_not_drown_the_mean() -> None:
    truth = torch.full((2, 1, 8, 8), 0.5)
    found = truth.clone()
    found[1] += 0.1
    assert image_scores(truth, found).mean_psnr == pytest.approx((PSNR_CAP + 20) / 2, abs=1e-3)


def test_found_pixels_outside_are_cut_and_true_ones_refused() -> None:
    truth = torch.ones(1, 1, 8, 8)
    assert image_scores(truth, 1.5 * truth).psnr.tolist() == [math.inf]
    with pytest.raises(UsageError, match="from 0 to 1, found 255 to 255"):
        image_scores(255 * truth, truth)
    with pytest.raises(ExhumeError, match="found images"):
        image_scores(truth, truth * torch.nan)


def test_images_of_another_shape_are_refused() -> None:
    with pytest.raises((UsageError, jaxtyping.TypeCheckError), match=r"found \(2, 1, 8, 8\)|Type-check error"):
        image_scores(torch.ones(1, 1, 8, 8), torch.ones(2, 1, 8, 8))


@pytest.mark.parametrize("shape", [(1, 1, 2, 8), (1, 1, 8, 2), (0, 1, 8, 8), (1, 0, 8, 8)])
def test_images_without_a_window_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="expected at least one image of 3 x 3 pixels"):
        image_scores(torch.zeros(shape), torch.zeros(shape))


def test_chance_scores_compare_every_image_with_another_one() -> None:
    truth = random_images(0, 3)
    chance, direct = chance_image_scores(truth), image_scores(truth, truth[[2, 0, 1]])
    assert torch.equal(chance.psnr, direct.psnr)
    assert torch.equal(chance.ssim, direct.ssim)
    assert chance.mean_psnr < 12
    assert chance.mean_ssim < 0.3


def test_chance_scores_of_one_image_come_from_noise_of_the_seed() -> None:
    truth = random_images(0, 1)
    first, again, other = (chance_image_scores(truth, seed=s).mean_psnr for s in (1, 1, 2))
    assert first == again != other
    assert first < 12
