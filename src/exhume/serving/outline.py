"""The first look at a file: some of its parts are enough for names and shapes, long before the rest has arrived.

The page sends the parts that say what a file is: the header of a safetensors file, the list of a zip archive and its
small entries. They are laid out at their places in a file of the whole size; what is between them is a hole, which
takes no room on the disk and reads as zeros. So whoever reads such a file must not look at the numbers of its tensors.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exhume.errors import UsageError
from exhume.serving.uploads import safe_name

MOST_PARTS = 100_000


@dataclass(frozen=True)
class FilePart:
    start: int
    content: bytes


def read_parts(body: bytes, size: int) -> list[FilePart]:
    """A line of JSON, [[start, length], ...] in the order of the file, and then the bytes of all parts.

    >>> read_parts(b"[[0, 2], [7, 1]]\\nabc", 8)
    [FilePart(start=0, content=b'ab'), FilePart(start=7, content=b'c')]
    """
    line, _, rest = body.partition(b"\n")
    wrong = UsageError("expected parts of the file in their order, found something else")
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(told, list) or len(told) > MOST_PARTS:
        raise wrong
    parts, end, taken = [], 0, 0
    for pair in told:
        if not isinstance(pair, list) or [type(number) for number in pair] != [int, int]:
            raise wrong
        start, length = pair
        if start < end or length < 0 or start + length > size:
            raise wrong
        parts.append(FilePart(start, rest[taken : taken + length]))
        end, taken = start + length, taken + length
    if taken != len(rest):
        raise wrong
    return parts


@contextmanager
def laid_out(parts: list[FilePart], name: str, size: int, folder: Path) -> Iterator[Path]:
    """A file of that name and size with these parts, for as long as it is looked at."""
    with tempfile.TemporaryDirectory(prefix="outline-", dir=folder) as place:
        path = Path(place) / safe_name(name)
        with path.open("xb") as file:
            for part in parts:
                file.seek(part.start)
                file.write(part.content)
            file.truncate(size)
        yield path
