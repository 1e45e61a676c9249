"""Files that were dropped: streamed to a private folder under names that are safe, and removed at the end.

A file is known by a number that the server makes up. Its own name is kept for people to read, and is the last part of
its path, so that a report says it; nothing of it leads anywhere.
"""

import asyncio
import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from exhume.errors import ExhumeError
from exhume.serving.settings import ServeSettings

BLOCK = 4 * 2**20
SPARE_DISK = 256 * 2**20
LONGEST_NAME = 160  # bytes; file systems take 255
NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|]")


class Refused(ExhumeError):
    """An upload that is not taken. `status` is what HTTP calls it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Upload:
    key: str
    path: Path
    size: int

    @property
    def name(self) -> str:
        return self.path.name


def safe_name(told: str) -> str:
    """The last part of a name, without what a file system, a shell or a screen would take for something else.

    >>> safe_name("../../etc/passwd"), safe_name("C:\\\\models\\\\a.pt"), safe_name("-rf"), safe_name("\\u202egnp.exe")
    ('passwd', 'a.pt', 'rf', 'gnp.exe')
    >>> safe_name("Gewichte ä.safetensors"), safe_name(".."), safe_name("")
    ('Gewichte ä.safetensors', 'file', 'file')
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", told))[-1]
    shown = "".join(letter for letter in last if letter.isprintable() and unicodedata.category(letter) != "Cs")
    name = NOT_IN_NAMES.sub("_", shown).strip().lstrip(".-~ ").rstrip(". ")
    stem, dot, suffix = name.rpartition(".")
    ending = f"{dot}{suffix}" if stem and len(suffix) <= 16 else ""
    body = name.removesuffix(ending).encode()[: LONGEST_NAME - len(ending.encode())].decode(errors="ignore")
    return f"{body}{ending}" or "file"


@dataclass
class Uploads:
    """What was dropped, by its key."""

    settings: ServeSettings
    files: dict[str, Upload] = field(default_factory=dict)
    under_way: int = 0

    @property
    def folder(self) -> Path:
        return self.settings.private / "uploads"

    def get(self, key: str) -> Upload:
        if key not in self.files:
            raise Refused(404, "expected a file that was dropped here, found none of this number; drop it again")
        return self.files[key]

    async def take(self, name: str, declared: int | None, chunks: AsyncIterator[bytes]) -> Upload:
        """Streams a file to the disk. Whatever ends this early, nothing of the file stays."""
        self._check_room(declared)
        key = secrets.token_hex(8)
        place = self.folder / key
        place.mkdir(mode=0o700, parents=True)
        path = place / safe_name(name)
        self.under_way += 1
        try:
            size = await self._stream(path, chunks)
            if declared is not None and size != declared:
                raise Refused(400, f"expected {declared:,} bytes of {path.name}, found {size:,}; drop it again")
            upload = Upload(key, path, size)
            self.files[key] = upload
            return upload
        except OSError as problem:
            raise Refused(507, f"expected room for {path.name}, found: {problem.strerror or problem}") from problem
        finally:
            self.under_way -= 1
            if key not in self.files:
                shutil.rmtree(place, ignore_errors=True)

    def remove(self, key: str) -> None:
        shutil.rmtree(self.get(key).path.parent, ignore_errors=True)
        with suppress(KeyError):
            del self.files[key]

    def _check_room(self, declared: int | None) -> None:
        settings, size = self.settings, declared or 0
        if size > settings.largest_upload:
            raise self._too_large(size)
        if self.under_way >= settings.uploads_at_once:
            raise Refused(503, f"expected at most {settings.uploads_at_once} uploads at once, found more; wait for one")
        if len(self.files) + self.under_way >= settings.most_files:
            raise Refused(409, f"expected at most {settings.most_files} files, found more; remove some")
        free = shutil.disk_usage(settings.private).free - SPARE_DISK
        if size > free:
            raise Refused(507, f"expected {size:,} bytes free on the disk, found {max(free, 0):,}; make room")

    def _too_large(self, size: int) -> Refused:
        most = self.settings.largest_upload
        return Refused(413, f"expected a file of at most {most:,} bytes, found {size:,} or more; see --largest-upload")

    def _check_pace(self, path: Path, size: int, seconds: float) -> None:
        """Drops that come one by one would hold a place for ever."""
        if seconds > self.settings.patience and size < self.settings.slowest * seconds:
            raise Refused(408, f"expected the rest of {path.name}, found it come too slowly")

    async def _stream(self, path: Path, chunks: AsyncIterator[bytes]) -> int:
        size, waiting, began = 0, bytearray(), time.monotonic()
        with path.open("xb") as file:
            path.chmod(0o600)
            while True:
                try:
                    async with asyncio.timeout(self.settings.patience):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
                except TimeoutError:
                    raise Refused(408, f"expected the rest of {path.name}, found nothing for a while") from None
                size += len(chunk)
                self._check_pace(path, size, time.monotonic() - began)
                if size > self.settings.largest_upload:
                    raise self._too_large(size)
                waiting += chunk
                if len(waiting) >= BLOCK:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(file.write, bytes(waiting))
        return size
