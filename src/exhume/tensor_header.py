"""The header of a safetensors file, read without its data and without torch.

The format: 8 bytes with the length of a JSON text, the JSON text (a tensor's dtype, shape and byte range under its
name), then the data. A header is believed only where it agrees with the size of the file.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.regular_file import regular
from exhume.strict_json import parse_json

ITEM_BYTES = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "F16": 2,
    "BF16": 2,
    "I16": 2,
    "U16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
MOST_DIMENSIONS = 64  # that torch computes with
LARGEST_HEADER = 100 * 2**20


@dataclass(frozen=True)
class Entry:
    """One tensor: `start` is its first byte in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.numbers * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Header:
    entries: dict[str, Entry]
    exhume: dict[str, Any]  # what exhume wrote about its own files; empty for others

    @property
    def parameters(self) -> int:
        return sum(entry.numbers for entry in self.entries.values())


def read_header(path: Path) -> Header:
    try:
        size = path.stat().st_size
        with regular(path).open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size - 8, LARGEST_HEADER):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            fields = parse_json(file.read(length))
        metadata = fields.pop("__metadata__", {})
        entries = {name: _entry(name, field, 8 + length, size) for name, field in fields.items()}
        _check_that_they_tile(entries, 8 + length, size)
        written = metadata.get("exhume", "{}")
        exhume = parse_json(written) if isinstance(written, str) else None
        if not isinstance(exhume, dict):
            raise ValueError("metadata of exhume that is no object")
        return Header(entries, exhume)
    except OSError as problem:
        raise ExhumeError(f"expected a readable weights file {path}, found: {problem.strerror}") from problem
    except KeyError as problem:
        raise ExhumeError(f"expected a whole safetensors file at {path}, found a tensor without {problem}") from problem
    except (struct.error, ValueError, TypeError, AttributeError, RecursionError) as problem:
        raise ExhumeError(f"expected a whole safetensors file at {path}, found: {problem}") from problem


def _entry(name: str, field: Any, data_start: int, size: int) -> Entry:
    dtype, shape, (begin, end) = field["dtype"], tuple(field["shape"]), field["data_offsets"]
    if dtype not in ITEM_BYTES:
        raise ValueError(f"the unknown type {dtype!r} of {name!r}")
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"shape {str(shape)[:80]} and bytes {str(begin)[:40]} to {str(end)[:40]} of {name[:80]!r}")
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions of {name[:80]!r}, more than a tensor can have")
    entry = Entry(dtype, shape, data_start + begin)
    if end - begin != entry.numbers * ITEM_BYTES[dtype]:
        raise ValueError(f"{end - begin} bytes for {name[:80]!r} of type {dtype} and shape {str(shape)[:80]}")
    if data_start + end > size:
        raise ValueError(f"{name!r} ending at byte {data_start + end} of a file of {size}: it is cut off")
    return entry


def _check_that_they_tile(entries: dict[str, Entry], data_start: int, size: int) -> None:
    """The format knows neither gaps nor overlaps: a small file could otherwise claim any number of parameters."""
    expected = data_start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != expected:
            raise ValueError(f"{name!r} starting at byte {entry.start}, where byte {expected} is the next one")
        expected = entry.stop
    if expected != size:
        raise ValueError(f"{size - expected} bytes that belong to no tensor")
