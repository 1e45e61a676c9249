"""An archive becomes a folder, whole or not at all, and nothing outside of it."""

import gzip
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from exhume.errors import ExhumeError

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError)


class BadArchive(ExhumeError):
    """The archive itself is of no use, and trying it again would not help."""


def unpack(archive: Path, kind: str, target: Path) -> None:
    """Unpack a "tar.gz" or "zip" archive that holds the folder `target.name`, and put that folder in place at the end.

    Everything goes to a temporary folder next to the target first; the last step is a rename.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
            _extract(archive, kind, Path(temporary))
            unpacked = Path(temporary) / target.name
            if not unpacked.is_dir():
                found = ", ".join(sorted(path.name for path in Path(temporary).iterdir())[:3]) or "nothing"
                raise BadArchive(f"expected the folder {target.name} in {archive.name}, found {found}")
            unpacked.replace(target)
    except DAMAGE as error:
        raise BadArchive(f"expected a sound {kind} archive in {archive.name}, found: {_words(error)}") from error
    except OSError as error:
        raise ExhumeError(f"expected room to unpack {archive.name} into {target.parent}, found: {error}") from error


def _extract(archive: Path, kind: str, folder: Path) -> None:
    if kind == "zip":
        with zipfile.ZipFile(archive) as members:
            for name in members.namelist():
                if not name or _leaves_its_folder(name):
                    raise BadArchive(f"expected members inside the archive's folder, found {name!r}; refused")
            members.extractall(folder)
        return
    if not hasattr(tarfile, "data_filter"):
        raise ExhumeError("expected Python 3.11.4 or newer to unpack safely, found an older one; update Python")
    try:
        with tarfile.open(archive, "r:gz") as members:
            members.extractall(folder, filter="data")
    except tarfile.FilterError as error:
        raise BadArchive(
            f"expected members inside the archive's folder, found {error.tarinfo.name!r}; refused"
        ) from None


def _leaves_its_folder(name: str) -> bool:
    """
    >>> [_leaves_its_folder(name) for name in ("a/b.txt", "a..b/c", "../evil", "a/../../evil", "/etc/x", "C:\\\\x")]
    [False, False, True, True, True, True]
    """
    windows = PureWindowsPath(name)
    return PurePosixPath(name).is_absolute() or bool(windows.anchor) or ".." in windows.parts


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
