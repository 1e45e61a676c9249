"""Data sets by name.

A data set is a `DataSource`: an entry point of the group `exhume.data`, or one that was registered by a call.

    [project.entry-points."exhume.data"]
    faces = "exhume.data.faces:FACES"

What no data set has as its name is the path of a folder of images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from exhume.errors import ExhumeError

if TYPE_CHECKING:
    from exhume.data.config import DataConfig
    from exhume.data.dataset import Dataset

GROUP = "exhume.data"


@dataclass(frozen=True)
class DataSource:
    """`load` gives what a request asks for, and `check` refuses a request that makes no sense for this data set.

    `defaults` are those of the request's fields that differ from what images have.
    """

    name: str
    load: Callable[["DataConfig"], "Dataset"]
    check: Callable[["DataConfig"], None]
    defaults: Mapping[str, object] = field(default_factory=dict)


_registered: dict[str, DataSource] = {}


def register(source: DataSource) -> None:
    """From now on `--data NAME` means this data set."""
    _registered[source.name] = source


def source_named(name: str) -> DataSource | None:
    """None where it is no name of a data set."""
    if name not in _registered and name in _installed():
        entry = _installed()[name]
        try:
            register(entry.load())
        except Exception as problem:
            raise ExhumeError(
                f"expected the data set {name} in {entry.value}, found {type(problem).__name__}: {problem}"
            ) from problem
    return _registered.get(name)


def source_names() -> tuple[str, ...]:
    return tuple(sorted({*_registered, *_installed()}))


@cache
def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
