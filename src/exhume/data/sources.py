"""Data sets by name.

A data set is a `DataSource`: an entry point of the group `exhume.data`, or one that was registered by a call.

    [project.entry-points."exhume.data"]
    faces = "exhume.data.faces:FACES"

What no data set has as its name is the path of a folder of images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exhume.extensions import Registry

if TYPE_CHECKING:
    from exhume.data.config import DataConfig
    from exhume.data.dataset import Dataset


@dataclass(frozen=True)
class DataSource:
    """`load` gives what a request asks for, and `check` refuses a request that makes no sense for this data set.

    `defaults` are those of the request's fields that differ from what images have.
    """

    name: str
    load: Callable[["DataConfig"], "Dataset"]
    check: Callable[["DataConfig"], None]
    defaults: Mapping[str, object] = field(default_factory=dict)


SOURCES: Registry[DataSource] = Registry("exhume.data", "a data set")


def register_data(source: DataSource) -> DataSource:
    """From now on `--data NAME` means this data set."""
    return SOURCES.add(source)
