"""One image file as pixels in [0, 1]."""

import warnings
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.regular_file import regular

EIGHT_BIT_GRAY = ("1", "L", "LA")
MOST_PIXELS = 50_000_000
SIXTEEN_BIT_GRAY = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def read_image(path: Path, formats: tuple[str, ...] | None = None) -> Float[Tensor, "c h w"]:
    """Pixels of a file, upright by its EXIF orientation: one channel for grayscale, otherwise three.

    Transparency is dropped, and an animation gives its first frame. Pillow calls 16-bit gray "I" or "I;16" depending
    on the format and squeezes it badly to 8 bits, so it is read as it is.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd tags of an image that can be read: many cameras write some
            with Image.open(regular(path), formats=formats) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    raise ValueError(f"{opened.width} x {opened.height} pixels, more than {MOST_PIXELS:,}")
                image = ImageOps.exif_transpose(opened)
                image.load()
    except UnidentifiedImageError:
        kind = " or ".join(formats) if formats else "known"
        raise ExhumeError(f"expected an image of a {kind} format in {path}, found something else") from None
    except Exception as error:
        # Pillow's decoders let damage show in any kind of error, some over several lines.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ExhumeError(f"expected a readable image in {path}, found: {reason}; replace or remove it") from error
    if image.mode in SIXTEEN_BIT_GRAY:
        values = np.asarray(image).astype(np.float64) / 65535
        if values.min() < 0 or values.max() > 1:
            raise ExhumeError(f"expected 8 or 16 bits a pixel in {path}, found more; convert it")
        return torch.from_numpy(values)[None]
    if image.mode == "F":
        raise ExhumeError(f"expected 8 or 16 bits a pixel in {path}, found floating-point pixels; convert it")
    bytes_ = np.asarray(image.convert("L" if image.mode in EIGHT_BIT_GRAY else "RGB"), dtype=np.uint8)
    values = bytes_.reshape(*bytes_.shape[:2], -1).transpose(2, 0, 1).astype(np.float64) / 255
    return torch.from_numpy(values)


def as_rgb(pixels: Float[Tensor, "c h w"]) -> Float[Tensor, "3 h w"]:
    """Three channels, a single one repeated."""
    return pixels.expand(3, -1, -1)
