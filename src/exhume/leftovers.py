"""Temporary names that a killed process leaves behind, and how the next one knows that nobody works on them any more.

Whoever writes under a temporary name holds a lock on it. The lock goes with the process, however that ends, and it is
seen from other containers and (where the file system passes locks on) from other machines, which process numbers are
not. So a name that has no lock is a leftover. Where there are no locks, nothing is ever taken for one.
"""

import fcntl
import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.exhume\.tmp", re.DOTALL)


@dataclass(frozen=True)
class Claim:
    """A temporary file or folder that is there, empty, and this process's own until it is released."""

    path: Path
    lock: int

    @classmethod
    def beside(cls, path: Path, folder: bool, mode: int = 0o666) -> "Claim":
        while True:
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.exhume.tmp")
            temporary.mkdir() if folder else temporary.touch(mode, exist_ok=False)
            lock = os.open(temporary, os.O_RDONLY)
            if locked(lock) is not False and _is(temporary, lock):
                return cls(temporary, lock)
            os.close(lock)  # somebody took it for a leftover before it was locked

    def release(self) -> None:
        """Removes what is still there under the temporary name."""
        _remove(self.path)
        os.close(self.lock)


def remove_leftovers(folder: Path) -> None:
    """Removes what dead processes left in a folder; what cannot be removed stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _LEFTOVER.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_unless_owned(Path(entry.path))


def _remove_unless_owned(path: Path) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe of that name would wait for a writer
    try:
        if locked(lock):
            _remove(path)
    finally:
        os.close(lock)


def _remove(path: Path) -> None:
    with suppress(OSError):  # renamed to its final name, or on a disk that has become read-only
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def locked(file: int) -> bool | None:
    """Whether this process has the lock of an open file now; None where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is(path: Path, file: int) -> bool:
    with suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(file))
    return False
