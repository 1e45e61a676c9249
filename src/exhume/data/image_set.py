"""Images as a loader hands them over, and the rows that are made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.data.config import DataConfig
from exhume.data.dataset import DTYPES, Dataset, downsample, prepare


@dataclass(frozen=True, repr=False)
class ImageSet:
    """Pixels in [0, 1] in double precision, classes one after the other; class_index is −1 without classes."""

    pixels: Float[Tensor, "n c h w"] = field(repr=False)
    class_names: tuple[str, ...]
    class_index: Int[Tensor, " n"]


def index_of_blocks(counts: Sequence[int]) -> Int[Tensor, " n"]:
    """0 repeated counts[0] times, then 1 repeated counts[1] times, and so on.

    >>> index_of_blocks([2, 1]).tolist()
    [0, 0, 1]
    """
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def labels_from_classes(class_index: Int[Tensor, " n"], class_count: int) -> Float[Tensor, " n"]:
    """Real targets of images: −1/+1 for two classes, the class position for more, else −1, +1, −1, ...

    >>> labels_from_classes(torch.tensor([0, 0, 1]), 2).tolist()
    [-1.0, -1.0, 1.0]
    >>> labels_from_classes(torch.tensor([-1, -1, -1]), 0).tolist()
    [-1.0, 1.0, -1.0]
    """
    if class_count > 2:
        return class_index.to(torch.float64)
    positions = class_index if class_count == 2 else torch.arange(len(class_index)) % 2
    return 2 * positions.to(torch.float64) - 1


def as_dataset(images: ImageSet, config: DataConfig) -> Dataset:
    """Images averaged down, standardised and brought to their norm as a request asks for."""
    pixels = images.pixels if config.side is None else downsample(images.pixels, config.side)
    dtype = DTYPES[config.dtype]
    prepared = prepare(pixels, config.standardise, config.norm)
    labels = labels_from_classes(images.class_index, len(images.class_names))
    count, channels, height, width = pixels.shape
    counts = [int((images.class_index == position).sum()) for position in range(len(images.class_names))]
    of_each = ", ".join(f"{number} {name}" for number, name in zip(counts, images.class_names, strict=True))
    shape = f"{count} images {channels}x{height}x{width}" + (f" ({of_each})" if of_each else "")
    return Dataset(
        inputs=prepared.rows.to(dtype),
        labels=labels.to(dtype),
        class_names=images.class_names,
        class_index=images.class_index,
        image_shape=(channels, height, width),
        preparation=prepared.preparation.to(dtype),
        description=f"{config.short_name}: {shape}, {prepared.preparation.describe()}",
    )
