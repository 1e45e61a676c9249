"""Keras models as data: `.keras` (a zip archive of JSON and HDF5), `.h5` of Keras 2 and 3, `.weights.h5`.

Keras itself is never asked: `load_model` runs what a file says. The layers are read from the JSON, their weights from
the datasets, in the layout that Keras documents by its own writer:

    .keras        config.json, metadata.json, model.weights.h5
    weights       layers/<class in snake case>[_<count>]/vars/<number>, optimizer/vars/<number>
    .h5           attribute model_config, model_weights/<layer>/..., optimizer_weights/...
"""

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.formats.archive import open_archive
from exhume.formats.contents import Contents, StoredObject
from exhume.formats.hdf5 import open_hdf5, stored_arrays, text_attribute, text_list
from exhume.formats.json_file import parse_object

WEIGHTS = "model.weights.h5"
LARGEST_CONFIG = 64 * 2**20


def read_keras(path: Path) -> Contents:
    """A `.keras` archive."""
    with open_archive(path) as archive:
        config = parse_object(archive.read("config.json", LARGEST_CONFIG), f"config.json of {path}")
        if WEIGHTS not in archive.entries:
            raise ExhumeError(f"expected {WEIGHTS!r} in {path}, found no such entry; save it again with Keras 3")
        others = sorted(set(archive.entries) - {"config.json", "metadata.json", WEIGHTS})

    @contextmanager
    def opener() -> Iterator[Any]:
        with _inside(path) as file, open_hdf5(path, file) as root:
            yield root

    with opener() as root:
        arrays = stored_arrays(root, path, opener)
    return Contents("Keras", arrays, _layers(config, path), {"config": config, "beside": others})


def read_h5(path: Path) -> Contents:
    """A whole model or weights alone, as Keras 2 and 3 write them; and any other HDF5 file as arrays."""

    @contextmanager
    def opener() -> Iterator[Any]:
        with open_hdf5(path) as root:
            yield root

    with opener() as root:
        arrays = stored_arrays(root, path, opener)
        text = text_attribute(root, "model_config")
        order = text_list(root["model_weights"], "layer_names") if "model_weights" in root else []
    config = None if text is None else parse_object(text, f"model_config of {path}")
    values = {"layer_names": order} | ({} if config is None else {"config": config})
    return Contents("HDF5", arrays, () if config is None else _layers(config, path), values)


def snake_case(name: str) -> str:
    """As Keras names the group of a layer by its class.

    >>> snake_case("Dense"), snake_case("BatchNormalization"), snake_case("Conv2D")
    ('dense', 'batch_normalization', 'conv2d')
    """
    apart = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", apart).lower()


def _layers(config: dict[str, Any], path: Path) -> tuple[StoredObject, ...]:
    """The layers of a Sequential or Functional model in their order, with their own settings as members."""
    inner = config.get("config")
    listed = inner.get("layers") if isinstance(inner, dict) else inner if isinstance(inner, list) else None
    if not isinstance(listed, list):
        return ()
    found, counts = [], dict[str, int]()
    for layer in listed:
        settings = layer.get("config") if isinstance(layer, dict) else None
        kind = layer.get("class_name") if isinstance(layer, dict) else None
        if not isinstance(settings, dict) or not isinstance(kind, str):
            raise ExhumeError(f"expected layers with class_name and config in {path}, found {str(layer)[:60]!r}")
        base = snake_case(kind)
        number = counts.get(base, 0)
        counts[base] = number + 1
        group = base if number == 0 else f"{base}_{number}"
        where = str(settings.get("name", group))[:200]
        inbound = layer.get("inbound_nodes", [])
        found.append(StoredObject(where, f"keras.{kind}", {"settings": settings, "group": group, "inbound": inbound}))
    return tuple(found)


@contextmanager
def _inside(path: Path) -> Iterator[io.BufferedIOBase]:
    """The weights inside the archive as a file: a window on the archive, where they are stored as they are."""
    with open_archive(path) as archive:
        entry, place = archive.entries[WEIGHTS], archive.place(WEIGHTS)
        packed = None if place is not None else archive.read(WEIGHTS, 2 * 2**30)
    if packed is not None:
        yield io.BytesIO(packed)
        return
    assert place is not None
    with path.open("rb") as file:
        yield io.BufferedReader(_Window(file, place, entry))


class _Window(io.RawIOBase):
    """The bytes of one entry of an archive, read where they lie."""

    def __init__(self, file: io.BufferedIOBase, start: int, entry: zipfile.ZipInfo) -> None:
        self._file, self._start, self._size, self._at = file, start, entry.file_size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._size - self._at))
        self._file.seek(self._start + self._at)
        read = self._file.read(count)
        buffer[: len(read)] = read
        self._at += len(read)
        return len(read)
