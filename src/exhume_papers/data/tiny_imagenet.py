"""Tiny-ImageNet in its official folder tree, or any cut of it in the same layout."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.data.config import DataConfig, DataSource, check_images
from exhume.data.dataset import Dataset
from exhume.data.image_file import as_rgb, read_image
from exhume.data.image_set import ImageSet, as_dataset, index_of_blocks
from exhume.errors import ExhumeError, UsageError
from exhume.regular_file import regular
from exhume_papers.data.cache import data_dir
from exhume_papers.data.class_choice import find_classes

FOLDER = "tiny-imagenet-200"
SIDE = 64
FETCH = "run 'exhume data fetch tiny-imagenet'"


def load_tiny_imagenet(root: Path, classes: Sequence[str], counts: Sequence[int]) -> ImageSet:
    """The first counts[c] training images of each class in file-name order, classes in the order asked for.

    A class is a WordNet id or its number in the *sorted* wnids.txt.
    """
    folder = root / FOLDER
    if not folder.is_dir():
        raise ExhumeError(f"expected Tiny-ImageNet in {folder}, found no such folder; {FETCH}")
    names = _class_names(folder)
    wanted = [names[position] for position in find_classes(classes, names, "Tiny-ImageNet")]
    paths = [path for name, count in zip(wanted, counts, strict=True) for path in _image_paths(folder, name, count)]
    return ImageSet(
        pixels=torch.stack([_read(path) for path in paths]),
        class_names=tuple(wanted),
        class_index=index_of_blocks(counts),
    )


def _class_names(folder: Path) -> tuple[str, ...]:
    path = folder / "wnids.txt"
    try:
        lines = regular(path).read_text(encoding="utf-8", errors="replace").split()
    except OSError as error:
        raise ExhumeError(f"expected the class list in {path}, found: {error.strerror}; {FETCH}") from error
    if not lines:
        raise ExhumeError(f"expected one class id a line in {path}, found none; {FETCH}")
    return tuple(sorted(lines))


def _image_paths(folder: Path, name: str, count: int) -> list[Path]:
    images = folder / "train" / name / "images"
    if count and not images.is_dir():
        raise ExhumeError(f"expected images of class {name!r} in {images}, found no such folder; {FETCH}")
    paths = sorted(images.glob("*.JPEG"), key=lambda path: path.name) if count else []
    if len(paths) < count:
        raise UsageError(f"expected {count} images of class {name!r}, found {len(paths)} in {images}; ask for fewer")
    return paths[:count]


def _read(path: Path) -> Float[Tensor, "3 h w"]:
    pixels = read_image(path, formats=("JPEG",))
    if pixels.shape[1:] != (SIDE, SIDE):
        raise ExhumeError(
            f"expected {SIDE}x{SIDE} pixels in {path}, found {pixels.shape[2]}x{pixels.shape[1]}; {FETCH}"
        )
    return as_rgb(pixels)


def _load(config: DataConfig) -> Dataset:
    return as_dataset(load_tiny_imagenet(data_dir(config), config.classes, config.split(len(config.classes))), config)


TINY_IMAGENET = DataSource("tiny-imagenet", _load, check_images, {"classes": ("2", "116")})
