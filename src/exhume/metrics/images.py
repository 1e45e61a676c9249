"""How alike two images look: PSNR and SSIM of each sample and its candidate, and what unlike images score.

Both scores are higher for better images. Pixels are in [0, 1]. Values of a found image outside are cut to [0, 1], as
any screen would; a true image outside is refused, because then the scale is wrong.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError, UsageError

PSNR_CAP = 100.0
"""The mean counts no image with more decibels: equal images have infinitely many and would drown the others."""
LARGEST_WINDOW = 7
SMALLEST_WINDOW = 3
PIXEL_TOLERANCE = 1e-3


@dataclass(frozen=True, repr=False)
class ImageScores:
    """PSNR in decibels and SSIM for each pair of images."""

    psnr: Float[Tensor, " n"]
    """10 log₁₀(1 / mean squared error); infinite for equal images."""
    ssim: Float[Tensor, " n"]
    """Structural similarity, 1 for equal images."""
    mean_psnr: float
    """The mean over the images, where each counts 100 dB at most (a root mean squared error of 1e-5)."""
    mean_ssim: float


def image_scores(truth: Float[Tensor, "n c h w"], found: Float[Tensor, "n c h w"]) -> ImageScores:
    """PSNR and SSIM of found[i] against truth[i]: bring candidates into the order and signs of a `Matching` first.

    SSIM's window is 7 × 7, or the largest odd one that fits images smaller than that, 3 × 3 at least.
    """
    from skimage.metrics import structural_similarity  # here: slow to import, and only images need it

    window = _window(truth)
    if truth.shape != found.shape:
        raise UsageError(f"expected images of shape {tuple(truth.shape)}, found {tuple(found.shape)}")
    a, b = _pixels(truth, "true images"), _pixels(found, "found images")
    if not bool(((truth >= -PIXEL_TOLERANCE) & (truth <= 1 + PIXEL_TOLERANCE)).all()):
        raise UsageError(
            f"expected pixels of true images from 0 to 1, found {truth.min().item():g} to {truth.max().item():g}; "
            "undo the standardisation first"
        )
    psnr = torch.tensor([_psnr(x, y) for x, y in zip(a, b, strict=True)], dtype=torch.float64)
    ssim = torch.tensor(
        [
            float(structural_similarity(x, y, data_range=1.0, channel_axis=0, win_size=window))
            for x, y in zip(a, b, strict=True)
        ],
        dtype=torch.float64,
    )
    return ImageScores(psnr, ssim, psnr.clamp_max(PSNR_CAP).mean().item(), ssim.mean().item())


def chance_image_scores(truth: Float[Tensor, "n c h w"], seed: int = 0) -> ImageScores:
    """The scores of each true image against the next one, which is what any image of the same kind would score.

    A single image is scored against uniform noise, drawn with `seed`.
    """
    if len(truth) > 1:
        return image_scores(truth, truth.roll(1, dims=0))
    if seed < 0:
        raise UsageError(f"expected a seed >= 0, found {seed}")
    return image_scores(truth, torch.from_numpy(np.random.default_rng(seed).random(tuple(truth.shape))))


def _psnr(truth: np.ndarray, found: np.ndarray) -> float:
    if np.array_equal(truth, found):
        return float("inf")
    from skimage.metrics import peak_signal_noise_ratio

    return float(peak_signal_noise_ratio(truth, found, data_range=1.0))


def _window(truth: Float[Tensor, "n c h w"]) -> int:
    n, c, h, w = truth.shape
    side = min(h, w, LARGEST_WINDOW)
    if n == 0 or c == 0 or side < SMALLEST_WINDOW:
        raise UsageError(
            f"expected at least one image of {SMALLEST_WINDOW} x {SMALLEST_WINDOW} pixels or more, "
            f"found {n} with {c} channels of {h} x {w}"
        )
    return side if side % 2 == 1 else side - 1


def _pixels(images: Float[Tensor, "n c h w"], name: str) -> np.ndarray:
    if not bool(images.isfinite().all()):
        raise ExhumeError(f"expected finite pixels in the {name}, found NaN or infinity; drop these images")
    return images.detach().cpu().double().clamp(0, 1).numpy()
