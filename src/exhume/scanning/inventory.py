"""What is in a file or a folder: listed without following links, opened without running anything."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from exhume.errors import ExhumeError
from exhume.formats.contents import Contents
from exhume.formats.extras import MissingExtra
from exhume.formats.links import REFUSED, leads_out
from exhume.formats.pickles import MOST_BYTES, Program, read_program
from exhume.formats.reading import kind_of, read_contents
from exhume.private_paths import without_folders

MOST_FILES = 200_000


@dataclass(frozen=True)
class Unread:
    """A file that could not be looked into, and why."""

    name: str
    reason: str
    extra: str | None = None
    """The extra of exhume that reads such files, where it is not installed."""

    @classmethod
    def of(cls, name: str, problem: ExhumeError, base: Path) -> "Unread":
        extra = problem.extra if isinstance(problem, MissingExtra) else None
        return cls(name, without_folders(str(problem), base), extra)


@dataclass(frozen=True, eq=False)
class ScannedFile:
    """`name` is the path below what is scanned. `contents` is there for models, `program` for pickles."""

    path: Path
    name: str
    size: int
    kind: str | None
    contents: Contents | None = None
    program: Program | None = None

    @cached_property
    def suffix(self) -> str:
        return self.path.suffix.lower()


@dataclass(frozen=True, eq=False)
class Inventory:
    root: Path
    files: tuple[ScannedFile, ...]
    unread: tuple[Unread, ...]
    folders: tuple[str, ...] = ()

    @property
    def models(self) -> Iterator[tuple[ScannedFile, Contents]]:
        """Files with contents. Shards stand for themselves; of their index it is only checked that it is true."""
        return ((file, file.contents) for file in self.files if file.contents is not None)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def take_stock(root: Path) -> Inventory:
    """Lists a folder, or one file, and opens each file that is a model. A file that cannot be read costs a line."""
    if not root.exists():
        raise ExhumeError(f"expected a file or folder to scan at {root}, found no such path")
    files: list[ScannedFile] = []
    unread: list[Unread] = []
    folders: list[str] = []
    base = root if root.is_dir() else root.parent
    for path in _walk(root, unread, folders):
        name = path.relative_to(base).as_posix()
        shown = name if name.isprintable() else repr(name)
        try:
            files.append(_open(path, shown, unread, base))
        except ExhumeError as problem:
            unread.append(Unread.of(shown, problem, base))
            files.append(ScannedFile(path, shown, _size(path), None))
    return Inventory(root, tuple(files), tuple(unread), tuple(folders))


def _open(path: Path, name: str, unread: list[Unread], base: Path) -> ScannedFile:
    size = path.stat().st_size
    kind = kind_of(path) if size else None
    if kind is None:
        return ScannedFile(path, name, size, None)
    program = None
    try:
        if kind == "pickle":
            with path.open("rb") as file:
                program = read_program(file.read(MOST_BYTES))
        contents = read_contents(path, kind)
        return ScannedFile(path, name, size, kind, None if kind == "shards" else contents)
    except ExhumeError as problem:
        if kind == "torch":
            program = _program_of_archive(path)
        unread.append(Unread.of(name, problem, base))
        return ScannedFile(path, name, size, kind, program=program)


def _program_of_archive(path: Path) -> Program | None:
    """Of a PyTorch file that is refused: the words in its pickle, read as text."""
    from exhume.formats.archive import open_archive

    try:
        with open_archive(path) as archive:
            name = next((name for name in archive.entries if name.rpartition("/")[2] == "data.pkl"), None)
            return None if name is None else read_program(archive.start(name, MOST_BYTES))
    except ExhumeError:
        return None


def _walk(root: Path, unread: list[Unread], folders: list[str]) -> Iterator[Path]:
    """Regular files, each once. A link is followed if it leads to a file inside, and never to a folder."""
    if not root.is_dir():
        if not root.is_file():
            raise ExhumeError(f"expected a file or folder to scan at {root}, found neither")
        yield root
        return
    seen = set[tuple[int, int]]()

    def complain(problem: OSError) -> None:
        unread.append(Unread(Path(problem.filename or root).name, f"could not be opened: {problem.strerror}"))

    for folder, below, names in os.walk(root, onerror=complain):
        for name in sorted(below):
            path = Path(folder) / name
            shown = path.relative_to(root).as_posix()
            if path.is_symlink():
                unread.append(Unread(shown, "a link to a folder, which was not followed; scan the folder itself"))
            else:
                folders.append(shown)
        below[:] = sorted(name for name in below if not (Path(folder) / name).is_symlink())
        for name in sorted(names):
            path = Path(folder) / name
            shown = path.relative_to(root).as_posix()
            try:
                if leads_out(path, root):
                    raise ExhumeError(f"{REFUSED}; scan what it leads to")
                status = path.stat()
            except (OSError, RuntimeError) as problem:
                unread.append(Unread(shown, f"could not be opened: {getattr(problem, 'strerror', None) or problem}"))
                continue
            except ExhumeError as problem:
                unread.append(Unread(shown, str(problem)))
                continue
            if not stat.S_ISREG(status.st_mode):
                unread.append(Unread(shown, "neither a file nor a folder, and was not opened"))
                continue
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            if len(seen) > MOST_FILES:
                raise ExhumeError(f"expected at most {MOST_FILES:,} files below {root}, found more; scan its parts")
            yield path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
