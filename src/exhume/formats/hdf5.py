"""HDF5 with h5py: what is in the file itself, and nothing that it points to.

Links to other files or to places in this one, data kept elsewhere, views of other data and anything that would unpack
to more than is stored are refused: no file that Keras writes has them, and each is a way to make a small file large or
to open another one.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError
from exhume.formats.contents import StoredArray
from exhume.formats.extras import require

MOST_ITEMS = 200_000
DEEPEST = 64
Opener = Callable[[], Any]


@contextmanager
def open_hdf5(path: Path, file: BufferedIOBase | None = None) -> Iterator[Any]:
    """The file at `path`, or one that is inside it and is handed over open."""
    h5py = require("h5py", "keras", path)
    try:
        with h5py.File(path if file is None else file, "r") as opened:
            yield opened
    except ExhumeError:
        raise
    except Exception as problem:  # whatever is wrong in a file of unknown origin shows in many ways
        found = " ".join(str(problem).split())[:160]
        raise ExhumeError(f"expected a whole HDF5 file at {path}, found: {found}") from problem


def stored_arrays(root: Any, path: Path, opener: Opener) -> dict[str, StoredArray]:
    """Every dataset under its name; `opener` opens the file again when one is read."""
    import h5py

    size = path.stat().st_size
    found: dict[str, StoredArray] = {}
    seen: set[Any] = set()
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    total = 0
    while waiting:
        place, group, depth = waiting.pop()
        identity = h5py.h5o.get_info(group.id).addr
        if identity in seen:
            raise ExhumeError(f"expected a tree in {path}, found the group {place[:80]!r} reached in two ways: a loop")
        seen.add(identity)
        if depth > DEEPEST or len(seen) + len(found) > MOST_ITEMS:
            raise ExhumeError(f"expected at most {MOST_ITEMS:,} items, {DEEPEST} deep, in {path}, found more")
        for name in group:
            link, full = group.get(name, getlink=True), f"{place}/{name}".lstrip("/")
            if not full.isprintable():
                raise ExhumeError(f"expected names that can be printed in {path}, found {full[:80]!r}")
            if not isinstance(link, h5py.HardLink):
                raise ExhumeError(
                    f"expected data in {path} itself, found {full[:80]!r}, a link to another place; it was not followed"
                )
            item = group[name]
            if isinstance(item, h5py.Group):
                waiting.append((full, item, depth + 1))
            elif isinstance(item, h5py.Dataset):
                claimed = _check(item, full, path)
                total += claimed
                if total > size:
                    raise ExhumeError(f"expected at most {size:,} bytes of data in {path}, found claims of more")
                found[full] = StoredArray(full, tuple(item.shape), str(item.dtype), _reader(opener, full))
    return found


def text_attribute(group: Any, name: str) -> str | None:
    """An attribute that is a text; Keras keeps JSON in them."""
    value = group.attrs.get(name)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def text_list(group: Any, name: str) -> list[str]:
    """An attribute that is a list of texts, perhaps in numbered pieces, as Keras writes long ones."""
    pieces = [name] if name in group.attrs else []
    while not pieces or f"{name}{len(pieces)}" in group.attrs:
        if f"{name}{len(pieces)}" not in group.attrs:
            break
        pieces.append(f"{name}{len(pieces)}")
    listed = [value for piece in pieces for value in np.asarray(group.attrs[piece]).ravel()]
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in listed]


def _check(item: Any, name: str, path: Path) -> int:
    if item.external or item.is_virtual:
        raise ExhumeError(f"expected data in {path} itself, found {name[:80]!r}, which lies in other files")
    if item.shape is None or item.dtype.hasobject or item.dtype.kind not in "biufSU":
        raise ExhumeError(f"expected numbers in {path}, found {name[:80]!r} of type {str(item.dtype)[:40]}")
    claimed, stored = math.prod(item.shape) * item.dtype.itemsize, item.id.get_storage_size()
    if claimed > stored:
        raise ExhumeError(
            f"expected data that is stored in full in {path}, found {name[:80]!r} of {claimed:,} bytes in {stored:,}; "
            "save it without compression"
        )
    return claimed


def _reader(opener: Opener, name: str) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        with opener() as root:
            return np.asarray(root[name][()])

    return read
