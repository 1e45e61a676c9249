"""Data as users ask for them, unchecked: the options of a command and the keys of a sweep become one configuration."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from exhume import seeds
from exhume.data.config import DataConfig
from exhume.values import parse_counts, parse_names


@runtime_checkable
class ImageWishes(Protocol):
    """Which images of a source, and how they are prepared."""

    @property
    def data_dir(self) -> str | Path | None: ...
    @property
    def classes(self) -> str | None: ...
    @property
    def per_class(self) -> str | None: ...
    @property
    def side(self) -> int | None: ...
    @property
    def standardise(self) -> str | None: ...
    @property
    def norm(self) -> str | None: ...


@runtime_checkable
class DataWishes(ImageWishes, Protocol):
    """Any data to train on."""

    @property
    def data(self) -> str: ...
    @property
    def samples(self) -> int: ...
    @property
    def dim(self) -> int | None: ...
    @property
    def subspace(self) -> int | None: ...
    @property
    def labels(self) -> str | None: ...
    @property
    def noise(self) -> float | None: ...
    @property
    def dtype(self) -> str: ...


def image_fields(wishes: ImageWishes) -> dict[str, object]:
    return {
        "data_dir": wishes.data_dir,
        "classes": parse_names(wishes.classes),
        "per_class": parse_counts(wishes.per_class),
        "side": wishes.side,
        "standardise": wishes.standardise,
        "norm": wishes.norm,
    }


def data_config(wishes: DataWishes, seed: int) -> DataConfig:
    return DataConfig.parse(
        name=wishes.data,
        samples=wishes.samples,
        dim=wishes.dim,
        subspace=wishes.subspace,
        label_rule=wishes.labels,
        noise=wishes.noise,
        dtype=wishes.dtype,
        seed=seeds.derive(seed, "data"),
        **image_fields(wishes),
    )
