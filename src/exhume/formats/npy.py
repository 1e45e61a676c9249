"""NumPy's own files: .npy, and .npz, which is a zip archive of them. Arrays of objects are pickles, and refused."""

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib import format as npy_format

from exhume.errors import ExhumeError
from exhume.formats.archive import Archive, open_archive
from exhume.formats.contents import Contents, StoredArray
from exhume.regular_file import regular

LARGEST_HEADER = 1 << 16
LARGEST_ENTRY = 2 * 2**30


def read_npy(path: Path) -> Contents:
    """Mapped from the file."""
    try:
        with regular(path).open("rb") as file:
            shape, order, dtype = _header(file, path.name, path.stat().st_size)
            start = file.tell()
    except OSError as problem:
        raise ExhumeError(f"expected a readable file {path}, found: {problem.strerror}") from problem

    def mapped() -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, dtype)
        return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=shape, order=order)

    name = path.stem
    return Contents("NumPy", {name: StoredArray(name, shape, str(dtype), mapped)})


def read_npz(path: Path) -> Contents:
    with open_archive(path) as archive:
        names = [name for name in archive.entries if name.endswith(".npy")]
        if not names:
            raise ExhumeError(f"expected arrays in {path}, found an archive without any .npy")
        arrays = {name[:-4]: packed_array(archive, name, name[:-4]) for name in names}
    return Contents("NumPy", arrays)


def packed_array(archive: Archive, entry: str, name: str) -> StoredArray:
    """An array inside an archive: its header now, its numbers when they are asked for."""
    size = archive.entries[entry].file_size
    shape, _, dtype = _header(io.BytesIO(archive.start(entry, LARGEST_HEADER)), entry, size)
    return StoredArray(name, shape, str(dtype), _reader(archive.path, entry))


def _reader(path: Path, entry: str) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        with open_archive(path) as again:
            return array_of(again.read(entry, LARGEST_ENTRY), entry)

    return read


def array_of(content: bytes, name: str) -> np.ndarray:
    """The array of a .npy file that is in memory."""
    file = io.BytesIO(content)
    shape, order, dtype = _header(file, name, len(content))
    return np.frombuffer(content, dtype, offset=file.tell(), count=math.prod(shape)).reshape(shape, order=order)


def _header(file: io.BufferedIOBase, name: str, size: int) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype]:
    """Shape, order and type, where they agree with the bytes that are there."""
    try:
        version = npy_format.read_magic(file)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version} of the format")
        shape, fortran, dtype = read(file)
    except Exception as problem:  # NumPy reads a header with Python's own tokens, whose errors are of many kinds
        found = " ".join(str(problem).split())[:120] or type(problem).__name__
        raise ExhumeError(f"expected an array in NumPy's format in {name}, found: {found}") from problem
    if dtype.hasobject:
        raise ExhumeError(
            f"expected numbers or texts in {name}, found Python objects, which are a pickle, and it was not run; where "
            "you trust it, load it with allow_pickle=True and save it again with a plain dtype"
        )
    if dtype.itemsize == 0 or any(type(length) is not int or length < 0 for length in shape):
        raise ExhumeError(f"expected numbers in {name}, found the type {str(dtype)[:40]} and shape {str(shape)[:60]}")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != size - file.tell():
        raise ExhumeError(
            f"expected {claimed:,} bytes of {str(shape)[:60]} {str(dtype)[:20]} in {name}, found {size - file.tell():,}"
        )
    return shape, "F" if fortran else "C", dtype
