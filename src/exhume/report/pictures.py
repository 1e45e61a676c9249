"""Pictures for a report: sharp, or blurred so that what was blurred away is not in the file."""

import base64
import io

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor

from exhume.picture_grid import as_array

LARGEST_BLURRED_SIDE = 6
SMALLEST_REDUCTION = 4
BLUR_PER_SIDE = 1 / 8


def blurred(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c small_h small_w"]:
    """A Gaussian blur of an eighth of the side, then averages over blocks: at most 6 × 6 pixels are left.

    No side keeps more than a quarter of its pixels, so at least 15 of 16 numbers are gone and no filter brings them
    back. A style sheet's blur would not do: the sharp picture would be in the file.
    """
    _, _, height, width = pictures.shape
    longest = max(height, width)
    side = max(1, min(LARGEST_BLURRED_SIDE, longest // SMALLEST_REDUCTION))
    small = (max(1, side * height // longest), max(1, side * width // longest))
    sigma = longest * BLUR_PER_SIDE
    smooth = gaussian_filter(pictures.detach().cpu().double().numpy(), sigma=(0, 0, sigma, sigma), mode="mirror")
    return torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(smooth), small)


def to_base64_png(picture: Float[Tensor, "c h w"]) -> str:
    pixels = (as_array(picture) * 255).round().astype(np.uint8)
    gray = len(picture) != 3
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if gray else pixels).save(file, format="PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode("ascii")
