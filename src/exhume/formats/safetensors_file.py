"""safetensors, one file or shards with an index: headers are read, numbers are mapped. No torch."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import numpy as np

from exhume.errors import ExhumeError
from exhume.formats.contents import Contents, StoredArray
from exhume.formats.json_file import read_json_object
from exhume.formats.links import own_file
from exhume.tensor_header import Entry, read_header

NUMPY_TYPES = {
    "F64": "<f8",
    "I64": "<i8",
    "U64": "<u8",
    "F32": "<f4",
    "I32": "<i4",
    "U32": "<u4",
    "F16": "<f2",
    "I16": "<i2",
    "U16": "<u2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
INDEX_ENDING = ".index.json"


def read_safetensors(path: Path) -> Contents:
    header = read_header(path)
    arrays = {
        name: StoredArray(name, entry.shape, entry.dtype, _reader(path, name, entry))
        for name, entry in header.entries.items()
    }
    return Contents("safetensors", arrays, values={"exhume": header.exhume} if header.exhume else {})


def read_shards(index: Path, read: Callable[[Path], Contents]) -> Contents:
    """All files that an index names, which lie beside it, as one. `read` reads each, whatever its kind."""
    arrays: dict[str, StoredArray] = {}
    for file, names in shard_files(index).items():
        found = read(file).arrays
        check_shard(index, file, names, found)
        arrays |= found
    return Contents("in shards", arrays)


def shard_files(index: Path) -> dict[Path, list[str]]:
    """The files of an index, each with the names of the tensors that the index says it has."""
    listed = read_json_object(index).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(file, str) for file in listed.values()):
        raise ExhumeError(f"expected a weight_map from names to files in {index}, found none")
    files: dict[Path, list[str]] = {}
    for file in sorted(set(listed.values())):
        if Path(file).name != file or file in ("", ".", "..") or not file.isprintable():
            raise ExhumeError(f"expected shards beside {index}, found {file[:80]!r}, which leads elsewhere")
        if file.endswith(INDEX_ENDING):
            raise ExhumeError(f"expected tensors in the shards of {index}, found {file[:80]!r}, another index")
        files[own_file(index.parent, file)] = [name for name, where in listed.items() if where == file]
    return files


def check_shard(index: Path, file: Path, names: Iterable[str], found: Collection[str]) -> None:
    lost = next((name for name in names if name not in found), None)
    if lost is not None:
        raise ExhumeError(f"expected {lost[:80]!r} in {file.name}, as {index} says, found no such tensor")


def _reader(path: Path, name: str, entry: Entry) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        if entry.numbers == 0:
            return np.zeros(entry.shape, np.float32)
        if entry.dtype == "BF16":  # the upper half of a float32
            halves = np.memmap(path, dtype="<u2", mode="r", offset=entry.start, shape=entry.shape)
            return (halves.astype(np.uint32) << 16).view(np.float32)
        if entry.dtype not in NUMPY_TYPES:
            raise ExhumeError(f"expected numbers that NumPy has in {name!r} of {path}, found {entry.dtype}")
        return np.memmap(path, dtype=NUMPY_TYPES[entry.dtype], mode="r", offset=entry.start, shape=entry.shape)

    return read
