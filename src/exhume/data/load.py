"""From a request to a data set: the one way in."""

from pathlib import Path

import torch

from exhume.data.cache import default_data_dir
from exhume.data.cifar10 import load_cifar10
from exhume.data.config import KNOWN_NAMES, DataConfig
from exhume.data.dataset import Dataset, Preparation, downsample, prepare
from exhume.data.faces import load_faces
from exhume.data.folder import load_folder
from exhume.data.image_set import ImageSet, labels_from_classes
from exhume.data.sphere import draw_sphere
from exhume.data.tiny_imagenet import load_tiny_imagenet
from exhume.errors import UsageError
from exhume.machine import check_fits

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def load(config: DataConfig) -> Dataset:
    """The data set that a configuration asks for, ready to train on.

    >>> load(DataConfig(name="sphere", samples=3, dim=5)).inputs.norm(dim=1).square().round().tolist()
    [5.0, 5.0, 5.0]
    """
    if config.name == "sphere":
        return _load_sphere(config)
    return _as_dataset(_load_images(config), config)


def _load_images(config: DataConfig) -> ImageSet:
    if config.name == "faces":
        return load_faces(config.samples)
    data_dir = default_data_dir() if config.data_dir is None else config.data_dir.expanduser()
    if config.name == "cifar10":
        return load_cifar10(data_dir, config.classes, config.split(len(config.classes)))
    if config.name == "tiny-imagenet":
        return load_tiny_imagenet(data_dir, config.classes, config.split(len(config.classes)))
    folder = Path(config.name).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"expected the data set {', '.join(KNOWN_NAMES)} or a folder of images, found {config.name!r}, "
            f"{'a file' if folder.exists() else 'which does not exist'}"
        )
    return load_folder(folder, config)


def _as_dataset(images: ImageSet, config: DataConfig) -> Dataset:
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


def _load_sphere(config: DataConfig) -> Dataset:
    assert config.dim is not None, "a configuration of the sphere has a dimension"
    dtype = DTYPES[config.dtype]
    check_fits(8 * config.samples * config.dim, "samples")
    drawn = draw_sphere(config.samples, config.dim, config.subspace, config.label_rule, config.noise, config.seed)
    preparation = Preparation(
        mean=torch.zeros(0, dtype=dtype),
        std=torch.ones(0, dtype=dtype),
        scale=torch.ones(config.samples, dtype=dtype),
        image_shape=None,
        standardise="none",
        norm="sqrt-d",
    )
    inside = "" if config.subspace is None else f" inside a random {config.subspace}-dimensional subspace"
    rule = "sign(Xg)" if config.label_rule == "sign" else f"Xg + noise of variance {config.noise:g}"
    return Dataset(
        inputs=drawn.rows.to(dtype),
        labels=drawn.labels.to(dtype),
        class_names=(),
        class_index=torch.full((config.samples,), -1),
        image_shape=None,
        preparation=preparation,
        description=(
            f"sphere: {config.samples} rows uniform on the sphere of radius sqrt(d) in {config.dim} dimensions"
            f"{inside}, labels {rule}"
        ),
    )
