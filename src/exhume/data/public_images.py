"""Images that anybody may have, brought to the size of those that are looked for: to learn how images look at all."""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.data.dataset import prepare
from exhume.data.folder import SUFFIXES
from exhume.data.image_file import as_rgb, read_image
from exhume.errors import ExhumeError, UsageError

MOST_IMAGES = 2000  # more do not change a spectrum


def public_images(folder: Path) -> list[Path]:
    """The image files of a folder and its subfolders in the order of their names, as many as are looked at."""
    try:
        found = (
            path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        )
        paths = sorted(path for path in found if path.is_file())[:MOST_IMAGES]
    except OSError as error:
        raise ExhumeError(f"expected a readable folder {folder}, found: {error.strerror}") from error
    if len(paths) < 2:
        raise UsageError(f"expected at least 2 images ({', '.join(SUFFIXES)}) in {folder}, found {len(paths)}")
    return paths


def load_public_rows(folder: Path, shape: tuple[int, int, int]) -> Float[Tensor, "n d"]:
    """Rows of norm √d from the images of a folder and its subfolders, standardised together as training data are.

    Each image is cut to the shape's proportions around its centre and averaged down (or drawn out) to its size.
    """
    paths = public_images(folder)
    images = torch.stack([_fitted(read_image(path), shape) for path in paths])
    flat = images.flatten(start_dim=1)
    varied = images[(flat.max(dim=1).values > flat.min(dim=1).values)]  # a blank one has no norm to be brought to
    if not len(varied):
        raise ExhumeError(f"expected images that are not blank in {folder}, found none; choose another folder")
    return prepare(varied, "subset", "sqrt-d").rows


def _fitted(image: Float[Tensor, "a b e"], shape: tuple[int, int, int]) -> Float[Tensor, "c h w"]:
    channels, height, width = shape
    if channels == 3:
        image = as_rgb(image) if len(image) == 1 else image
    elif channels == 1:
        image = image.mean(dim=0, keepdim=True)
    else:
        raise UsageError(f"expected images of 1 or 3 channels for a spectrum from files, found {channels} channels")
    tall, wide = image.shape[1:]
    scale = min(tall / height, wide / width)
    rows, columns = max(1, round(height * scale)), max(1, round(width * scale))
    top, left = (tall - rows) // 2, (wide - columns) // 2
    cut = image[None, :, top : top + rows, left : left + columns]
    fitted = torch.nn.functional.interpolate(cut, (height, width), mode="bilinear", antialias=True)
    return fitted[0].clamp(0, 1)
