"""Zip archives from outside: listed first, and opened only where the list can be true.

An archive is refused where its entries claim more than they can unpack to, lie over each other, repeat a name, or
have a name that leads out of the archive. Entries are read one by one, never written anywhere.
"""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from exhume.errors import ExhumeError

MOST_ENTRIES = 100_000
DEFLATE_RATIO = 1032  # the most that deflate can make of one byte
LARGEST_UNPACKED = 4 * 2**30
"""Of entries that are compressed: their claims cannot be held against the size of the file."""
_KNOWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


class Archive:
    """An open archive whose list has been checked."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self.entries = {entry.filename: entry for entry in archive.infolist()}

    def read(self, name: str, largest: int) -> bytes:
        """One entry, whole; `largest` bounds what it may unpack to."""
        entry = self.entries.get(name)
        if entry is None:
            raise ExhumeError(f"expected {name!r} in {self.path}, found no such entry; save it again")
        if entry.file_size > largest:
            raise ExhumeError(
                f"expected at most {largest:,} bytes of {name!r} in {self.path}, found {entry.file_size:,}"
            )
        with _whole(self.path), self._archive.open(entry) as file:
            content = file.read(entry.file_size + 1)
        if len(content) != entry.file_size:
            raise ExhumeError(f"expected {entry.file_size:,} bytes of {name!r} in {self.path}, found another number")
        return content

    def start(self, name: str, count: int) -> bytes:
        with _whole(self.path), self._archive.open(self.entries[name]) as file:
            return file.read(count)

    def place(self, name: str) -> int | None:
        """Where the bytes of an entry begin in the file, if they are stored as they are."""
        entry = self.entries[name]
        if entry.compress_type != zipfile.ZIP_STORED:
            return None
        with self.path.open("rb") as file:
            file.seek(entry.header_offset + 26)
            lengths = file.read(4)
        return entry.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    with _whole(path):
        opened = zipfile.ZipFile(path)
    with opened:
        _check(opened.infolist(), path, path.stat().st_size)
        yield Archive(path, opened)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Whatever zipfile stumbles over is one line."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError) as problem:
        found = str(problem) or "its end too early"
        raise ExhumeError(f"expected a whole zip archive at {path}, found: {found}; save it again") from problem


def _check(entries: list[zipfile.ZipInfo], path: Path, size: int) -> None:
    def refuse(found: str) -> None:
        raise ExhumeError(f"expected an archive that can be what it claims at {path}, found {found}; it was not opened")

    if len(entries) > MOST_ENTRIES:
        refuse(f"{len(entries):,} entries")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        refuse("two entries of one name")
    compressed, unpacked = 0, 0
    for entry in entries:
        place = PurePosixPath(entry.filename)
        if place.is_absolute() or ".." in place.parts or "\\" in entry.filename or not entry.filename.isprintable():
            refuse(f"the entry {entry.filename[:80]!r}, whose name leads elsewhere")
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _KNOWN:
            refuse(f"{entry.filename[:80]!r} encrypted or packed in a way that is not read")
        stored = entry.compress_type == zipfile.ZIP_STORED
        if entry.file_size > entry.compress_size * (1 if stored else DEFLATE_RATIO) + (0 if stored else 64):
            refuse(f"{entry.filename[:80]!r} of {entry.file_size:,} bytes packed into {entry.compress_size:,}")
        compressed += entry.compress_size
        unpacked += 0 if stored else entry.file_size
    if compressed > size:
        refuse(f"entries of {compressed:,} bytes in a file of {size:,}")
    if unpacked > LARGEST_UNPACKED:
        refuse(f"entries that unpack to {unpacked:,} bytes")
