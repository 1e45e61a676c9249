"""One command at a time in a folder: two that write the same files would leave a mixture of both.

The lock is on the folder itself, so there is no file for it, and it goes with the process that holds it, however that
ends. Where a file system has no locks, nobody is kept out.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exhume.errors import ExhumeError, UsageError
from exhume.leftovers import locked


@contextmanager
def alone_in(folder: Path, work: str) -> Iterator[None]:
    """Holds the lock of a folder, or refuses; `work` says what for."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as problem:
        raise ExhumeError(f"expected a readable folder {folder}, found: {problem.strerror}") from problem
    try:
        if locked(file) is False:
            raise UsageError(f"expected {folder} for {work} alone, found another command at work there; wait for it")
        yield
    finally:
        os.close(file)
