"""The rows v_1..v_p of the random-features matrix V, wherever they are kept.

V is the largest object of the problem (p x d, up to terabytes), so everything that uses it asks for row blocks:

- `HeldRows` has it in memory;
- `MappedRows` reads it from a safetensors file through the page cache;
- `DrawnRows` keeps a seed only and draws each block again when asked: V_kj ~ N(0, 1/d), i.i.d.

All three give the same numbers for the same seed. Drawing is counter-based (Philox): a chunk of `CHUNK_ROWS` rows is a
function of the seed and the chunk's number alone, so blocks may be asked for in any order, in any size, by any number
of threads or machines.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.files import SCHEMA, check_schema, replacing
from exhume.raw_bytes import raw_bytes
from exhume.tensor_header import read_header

CHUNK_ROWS = 256
BLOCK_BYTES = 64 * 2**20
TENSOR_NAME = "V"
FILE_DTYPES = {"F32": "float32", "F64": "float64", "F16": "float16"}


@runtime_checkable
class Rows(Protocol):
    """p rows in R^d that can be read in contiguous blocks."""

    @property
    def p(self) -> int: ...

    @property
    def d(self) -> int: ...

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        """Rows start..stop-1. May be a view: callers never write to it."""
        ...

    def part(self, start: int, stop: int) -> "Rows":
        """The rows start..stop-1 as rows of their own, still kept where they are."""
        ...

    @property
    def block_rows(self) -> int:
        """How many rows to ask for at once, so that a block stays small where it has to be made."""
        ...

    @property
    def held(self) -> Float[Tensor, "p d"] | None:
        """All of them, where they are in memory."""
        ...

    @property
    def coarse(self) -> bool:
        """Whether products with them are made in their own precision, otherwise in that of the inputs."""
        ...

    @property
    def independent(self) -> bool:
        """Whether they are known to be independent draws, of which none repeats another."""
        ...

    @property
    def chosen(self) -> Int[Tensor, " p"] | None:
        """Which rows of an unpruned matrix these are; None: all."""
        ...

    def telltale(self) -> bytes:
        """What tells these rows from others."""
        ...

    def described(self, folder: Path) -> dict[str, str | int] | None:
        """Which rows these are, for a file in that folder, without their numbers; None: these have to be written."""
        ...


class PlainRows:
    """What rows say of themselves that are neither in memory nor known to be anything."""

    @property
    def held(self) -> Float[Tensor, "p d"] | None:
        return None

    @property
    def coarse(self) -> bool:
        return False

    @property
    def independent(self) -> bool:
        return False

    @property
    def chosen(self) -> Int[Tensor, " p"] | None:
        return None

    def described(self, folder: Path) -> dict[str, str | int] | None:
        return None

    def telltale(self: Rows) -> bytes:
        """A checksum per block. CRC-32 finds a changed matrix, at six times the speed of a cryptographic one."""
        sums = bytearray()
        for part in blocks(self, CHUNK_ROWS * 4):  # the same for V in memory and in a file
            sums += zlib.crc32(raw_bytes(self.block(part.start, part.stop))).to_bytes(4, "little")
        return bytes(sums)


@dataclass(frozen=True, eq=False, repr=False)
class RowsOfOthers(PlainRows):
    """Some of the rows of `whole`, which stay where they are."""

    whole: Rows

    @property
    def d(self) -> int:
        return self.whole.d

    @property
    def block_rows(self) -> int:
        return self.whole.block_rows


@dataclass(frozen=True, eq=False, repr=False)
class HeldRows(PlainRows):
    """V in memory."""

    values: Float[Tensor, "p d"]
    coarse: bool = False

    @property
    def held(self) -> Float[Tensor, "p d"]:
        return self.values

    @property
    def p(self) -> int:
        return self.values.shape[0]

    @property
    def d(self) -> int:
        return self.values.shape[1]

    @property
    def block_rows(self) -> int:
        return CHUNK_ROWS * 4

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        return self.values[start:stop]

    def part(self, start: int, stop: int) -> "HeldRows":
        return HeldRows(self.values[start:stop], self.coarse)


@dataclass(frozen=True)
class DrawnRows(PlainRows):
    """V as a seed: rows first..first+p-1 of an endless matrix with independent N(0, 1/d) entries."""

    seed: int
    p: int
    d: int
    first: int = 0

    @property
    def block_rows(self) -> int:
        return _rows_that_fit(self.d)

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        begin, end = self.first + start, self.first + stop
        if start == stop:
            return torch.empty(0, self.d)
        chunks = range(begin // CHUNK_ROWS, -(-end // CHUNK_ROWS))
        drawn = np.empty((len(chunks) * CHUNK_ROWS, self.d), dtype=np.float32)
        targets = drawn.reshape(len(chunks), CHUNK_ROWS, self.d)
        if len(chunks) == 1:
            self._draw(chunks[0], targets[0])
        else:  # numpy lets go of the interpreter while it draws, so threads share the work
            with ThreadPoolExecutor(torch.get_num_threads()) as pool:
                list(pool.map(self._draw, chunks, targets))
        offset = begin - chunks[0] * CHUNK_ROWS
        return torch.from_numpy(drawn[offset : offset + stop - start])

    def _draw(self, chunk: int, out: np.ndarray) -> None:
        stream = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, chunk]))
        stream.standard_normal(dtype=np.float32, out=out)
        out *= np.float32(1 / math.sqrt(self.d))

    @property
    def independent(self) -> bool:
        return True

    def telltale(self) -> bytes:
        return repr(self).encode()

    def described(self, folder: Path) -> dict[str, str | int]:
        return {"kind": "drawn", "seed": self.seed, "p": self.p, "d": self.d, "first": self.first}

    def part(self, start: int, stop: int) -> "DrawnRows":
        return DrawnRows(self.seed, stop - start, self.d, self.first + start)


@dataclass(frozen=True)
class MappedRows(PlainRows):
    """V in a safetensors file, read through the page cache: no memory of its own."""

    path: Path
    p: int
    d: int
    offset: int
    dtype: str
    first: int = 0  # the rows of the file that come before these; `offset` has skipped them

    @classmethod
    def open(cls, path: Path) -> "MappedRows":
        name = TENSOR_NAME
        header = read_header(path)
        entries = header.entries
        check_schema(header.exhume, path)
        if name not in entries:
            some = ", ".join(repr(other) for other in islice(entries, 5))
            raise ExhumeError(f"expected a tensor named {name} in {path}, found {some or 'none'}")
        entry = entries[name]
        if entry.dtype not in FILE_DTYPES:
            raise ExhumeError(f"expected {name} in {path} as one of {', '.join(FILE_DTYPES)}, found {entry.dtype}")
        if len(entry.shape) != 2 or min(entry.shape) < 1:
            raise ExhumeError(f"expected {name} in {path} as a p x d matrix, found shape {list(entry.shape)}")
        p, d = entry.shape
        return cls(path, p, d, entry.start, FILE_DTYPES[entry.dtype])

    @property
    def block_rows(self) -> int:
        return _rows_that_fit(self.d)

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        itemsize = np.dtype(self.dtype).itemsize
        # mode "c" gives torch a writable view without ever writing to the file
        view = np.memmap(self.path, self.dtype, "c", self.offset + start * self.d * itemsize, (stop - start, self.d))
        return torch.from_numpy(view)

    def described(self, folder: Path) -> dict[str, str | int] | None:
        """Of a file beside it."""
        if self.path.parent.resolve() != folder.resolve():
            return None
        return {"kind": "file", "name": self.path.name, "p": self.p, "first": self.first}

    def part(self, start: int, stop: int) -> "MappedRows":
        itemsize = np.dtype(self.dtype).itemsize
        offset = self.offset + start * self.d * itemsize
        return MappedRows(self.path, stop - start, self.d, offset, self.dtype, self.first + start)


def blocks(rows: Rows, block_rows: int | None = None) -> Iterator[slice]:
    """Consecutive slices that cover the rows.

    >>> list(blocks(DrawnRows(seed=0, p=5, d=2), block_rows=2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = block_rows or rows.block_rows
    for start in range(0, rows.p, size):
        yield slice(start, min(start + size, rows.p))


def hold(rows: Rows, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> HeldRows:
    """The same rows in memory, filled block by block so that no second copy exists on the way."""
    if rows.held is not None:
        return HeldRows(rows.held.to(device=device, dtype=dtype))
    values = torch.empty(rows.p, rows.d, dtype=dtype, device=device)
    for block in blocks(rows):
        values[block] = rows.block(block.start, block.stop).to(device=device, dtype=dtype)
    return HeldRows(values)


def write_rows(rows: Rows, path: Path) -> MappedRows:
    """Writes V to a safetensors file block by block, bit for bit; the whole matrix is never in memory."""
    written = {getattr(torch, numpy_name): name for name, numpy_name in FILE_DTYPES.items()}
    dtype = rows.block(0, 0).dtype
    if dtype not in written:  # bfloat16: numpy has no such type, and float32 holds it exactly
        dtype = torch.float32
    size = rows.p * rows.d * dtype.itemsize
    entry = {"dtype": written[dtype], "shape": [rows.p, rows.d], "data_offsets": [0, size]}
    described = {"exhume": json.dumps({"kind": "features", "schema": SCHEMA})}
    header = json.dumps({"__metadata__": described, TENSOR_NAME: entry}).encode()
    header += b" " * (-(8 + len(header)) % 64)  # data aligned as in memory: products then round as they do there
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for block in blocks(rows):
            values = rows.block(block.start, block.stop).to(device="cpu", dtype=dtype).contiguous()
            values.numpy().tofile(file)
    return MappedRows.open(path)


def _rows_that_fit(d: int) -> int:
    """Rows of one block of about BLOCK_BYTES, in whole chunks: a drawn block then wastes nothing."""
    return max(1, BLOCK_BYTES // (4 * d * CHUNK_ROWS)) * CHUNK_ROWS
