"""Links in a folder from outside: they may lead to files of the folder, and nowhere else.

A snapshot in the cache of Hugging Face is a folder of links to the `blobs` two folders up; these count as its own.
"""

from pathlib import Path

from exhume.errors import ExhumeError

REFUSED = "a link that leads out of the folder, and was not followed"


def leads_out(path: Path, folder: Path) -> bool:
    if not path.is_symlink():
        return False
    own, target = folder.resolve(), path.resolve(strict=True)
    blobs = [own.parents[1] / "blobs"] if own.parent.name == "snapshots" else []
    return not any(target.is_relative_to(place) for place in (own, *blobs))


def own_file(folder: Path, name: str) -> Path:
    """A file of the folder, or an `ExhumeError`; nothing is asked of one that is not there."""
    path = folder / name
    try:
        if leads_out(path, folder):
            raise ExhumeError(f"expected files of its own in {folder}, found {name!r}, {REFUSED}")
    except (OSError, RuntimeError) as problem:
        raise ExhumeError(f"expected a readable file {path}, found: {problem}") from problem
    return path
