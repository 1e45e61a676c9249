"""CIFAR-10 in its official binary version, or any cut of it in the same layout."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from exhume.data.config import DataConfig, DataSource, check_images
from exhume.data.dataset import Dataset
from exhume.data.image_set import ImageSet, as_dataset, index_of_blocks
from exhume.errors import ExhumeError, UsageError
from exhume.regular_file import regular
from exhume_papers.data.cache import data_dir
from exhume_papers.data.class_choice import find_classes

FOLDER = "cifar-10-batches-bin"
BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
IMAGE_SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32
STANDARD_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# A block is read at a time, because the wanted images usually stand at the front of 150 MB.
BLOCK_RECORDS = 512

Records = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


def load_cifar10(root: Path, classes: Sequence[str], counts: Sequence[int]) -> ImageSet:
    """The first counts[c] images of each class in file order over the training split, classes in the order asked for.

    A record is one label byte and then 3 × 32 × 32 pixels, red plane first.
    """
    folder = root / FOLDER
    if not folder.is_dir():
        raise ExhumeError(f"expected CIFAR-10 in {folder}, found no such folder; run 'exhume data fetch cifar10'")
    names = _class_names(folder)
    wanted = find_classes(classes, names, "CIFAR-10")
    found = _first_of_each(folder, names, dict(zip(wanted, counts, strict=True)))
    for number, count in zip(wanted, counts, strict=True):
        if len(found[number]) < count:
            raise UsageError(
                f"expected {count} images of class {names[number]!r}, found {len(found[number])} in {folder}; "
                "ask for fewer or fetch the full set with 'exhume data fetch cifar10'"
            )
    pixels = np.concatenate([np.array(found[number], np.uint8).reshape(-1, *IMAGE_SHAPE) for number in wanted])
    return ImageSet(
        pixels=torch.from_numpy(pixels).to(torch.float64) / 255,
        class_names=tuple(names[number] for number in wanted),
        class_index=index_of_blocks(counts),
    )


def _class_names(folder: Path) -> tuple[str, ...]:
    path = folder / "batches.meta.txt"
    if not path.exists():
        return STANDARD_NAMES
    try:
        lines = regular(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ExhumeError(f"expected class names in {path}, found it unreadable: {error.strerror}") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        raise ExhumeError(f"expected one class name a line in {path}, found none; run 'exhume data fetch cifar10'")
    return names


def _first_of_each(folder: Path, names: Sequence[str], counts: dict[int, int]) -> dict[int, list[np.ndarray]]:
    """Pixels of the first counts[c] records of each class c, or as many as there are."""
    found: dict[int, list[np.ndarray]] = {number: [] for number in counts}
    paths = [folder / batch for batch in BATCHES if (folder / batch).exists()]
    if not paths:
        raise ExhumeError(
            f"expected {BATCHES[0]} to {BATCHES[-1]} in {folder}, found none; run 'exhume data fetch cifar10'"
        )
    for path in paths:
        for first, block in _blocks(path):
            labels = block[:, 0]
            if labels.max() >= len(names):
                record = int((labels >= len(names)).argmax())
                raise ExhumeError(
                    f"expected label bytes below {len(names)} in {path}, found {labels[record]} in record "
                    f"{first + record}; download it again with 'exhume data fetch cifar10'"
                )
            for number, count in counts.items():
                missing = count - len(found[number])
                found[number].extend(block[index, 1:].copy() for index in np.flatnonzero(labels == number)[:missing])
            if all(len(found[number]) == count for number, count in counts.items()):
                return found
    return found


def _blocks(path: Path) -> Iterator[tuple[int, Records]]:
    """Blocks of records, each with the number of its first record."""
    try:
        size = path.stat().st_size
        if size == 0 or size % RECORD_BYTES:
            raise ExhumeError(
                f"expected a whole number of {RECORD_BYTES}-byte CIFAR-10 records in {path}, found {size} bytes; "
                "download it again with 'exhume data fetch cifar10'"
            )
        records = np.memmap(path, dtype=np.uint8, mode="r", shape=(size // RECORD_BYTES, RECORD_BYTES))
    except OSError as error:
        raise ExhumeError(f"expected a readable CIFAR-10 file {path}, found: {error.strerror}") from error
    for first in range(0, len(records), BLOCK_RECORDS):
        yield first, records[first : first + BLOCK_RECORDS]


def _load(config: DataConfig) -> Dataset:
    return as_dataset(load_cifar10(data_dir(config), config.classes, config.split(len(config.classes))), config)


CIFAR10 = DataSource("cifar10", _load, check_images, {"classes": ("frog", "truck")})
