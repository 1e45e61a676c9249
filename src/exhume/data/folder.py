"""A user's own images: a flat folder, or one subfolder a class."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.data.config import DataConfig
from exhume.data.dataset import downsample
from exhume.data.image_file import as_rgb, read_image
from exhume.data.image_set import ImageSet, index_of_blocks
from exhume.errors import ExhumeError, UsageError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class _Selection:
    """The files to read, class after class; no class names for a flat folder."""

    paths: tuple[Path, ...]
    class_names: tuple[str, ...]
    counts: tuple[int, ...]


def load_folder(folder: Path, config: DataConfig) -> ImageSet:
    """The first images of the folder (or of each of its classes) in name order.

    They stay gray if all of them are, and become RGB otherwise. With `side` each is averaged down before they are put
    together, so that images of different sizes are welcome as long as the side divides all of them.
    """
    try:
        selection = _select(folder, config)
    except OSError as error:
        raise ExhumeError(f"expected a readable folder {folder}, found: {error.strerror}") from error
    images = [read_image(path) for path in selection.paths]
    if config.side is None:
        _check_sizes(selection.paths, images)
    else:
        images = [_averaged(path, image, config.side) for path, image in zip(selection.paths, images, strict=True)]
    if any(len(image) == 3 for image in images):
        images = [as_rgb(image) for image in images]
    without_class = torch.full((len(images),), -1)
    return ImageSet(
        pixels=torch.stack(images),
        class_names=selection.class_names,
        class_index=index_of_blocks(selection.counts) if selection.class_names else without_class,
    )


def _select(folder: Path, config: DataConfig) -> _Selection:
    flat = _images_in(folder)
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    by_class = {path.name: images for path in subfolders if (images := _images_in(path))}
    if flat and by_class:
        raise UsageError(
            f"expected images either in {folder} or in one subfolder a class, "
            f"found {flat[0].name} beside the class {next(iter(by_class))!r}; move one of them"
        )
    if not flat and not by_class:
        raise UsageError(f"expected images ({', '.join(SUFFIXES)}) in {folder} or its subfolders, found none")
    return _select_flat(folder, flat, config) if flat else _select_classes(folder, by_class, config)


def _select_flat(folder: Path, flat: list[Path], config: DataConfig) -> _Selection:
    if config.classes or config.per_class is not None:
        found = f"the classes {', '.join(config.classes)}" if config.classes else f"per_class {config.per_class}"
        raise UsageError(f"expected no classes for the flat folder {folder}, found {found}; make a subfolder a class")
    if len(flat) < config.samples:
        raise UsageError(f"expected {config.samples} images in {folder}, found {len(flat)}; ask for fewer")
    return _Selection(paths=tuple(flat[: config.samples]), class_names=(), counts=())


def _select_classes(folder: Path, by_class: dict[str, list[Path]], config: DataConfig) -> _Selection:
    names = config.classes or tuple(by_class)
    for position, name in enumerate(names):
        if name not in by_class:
            raise UsageError(f"expected a class of {folder} ({', '.join(by_class)}), found {name!r}")
        if name in names[:position]:
            raise UsageError(f"expected each class once, found {name!r} twice in {','.join(names)!r}")
    counts = config.split(len(names))
    for name, count in zip(names, counts, strict=True):
        if len(by_class[name]) < count:
            raise UsageError(
                f"expected {count} images of class {name!r}, found {len(by_class[name])} in {folder / name}; "
                "ask for fewer, or say how many of each with per_class"
            )
    paths = tuple(path for name, count in zip(names, counts, strict=True) for path in by_class[name][:count])
    return _Selection(paths=paths, class_names=names, counts=counts)


def _images_in(folder: Path) -> list[Path]:
    # Names that begin with a dot are left-overs of file managers, such as ._photo.jpg, and not images.
    paths = (path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))
    return sorted((path for path in paths if path.is_file()), key=lambda path: path.name)


def _check_sizes(paths: tuple[Path, ...], images: list[Float[Tensor, "_ _ _"]]) -> None:
    height, width = images[0].shape[1:]
    for path, image in zip(paths, images, strict=True):
        if image.shape[1:] != (height, width):
            sides = math.gcd(*(length for other in images for length in other.shape[1:]))
            advice = f"or give a side that divides {sides}" if sides > 1 else "no side divides all of them"
            raise UsageError(
                f"expected images of one size, found {paths[0]} with {width}x{height} and "
                f"{path} with {image.shape[2]}x{image.shape[1]} pixels; resize them, {advice}"
            )


def _averaged(path: Path, image: Float[Tensor, "c h w"], side: int) -> Float[Tensor, "c side side"]:
    try:
        return downsample(image[None], side)[0]
    except UsageError as error:
        raise UsageError(f"{error} in {path}") from None
