"""Download public data sets: resumed, verified, unpacked, whole or absent."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from exhume.errors import ExhumeError, UsageError
from exhume_papers.data.cache import default_data_dir
from exhume_papers.data.download import Progress, discard, download
from exhume_papers.data.unpack import BadArchive, unpack


@dataclass(frozen=True)
class Download:
    """A published archive: where it is, what it weighs in, and the folder it holds."""

    source: str
    file_name: str
    kind: str
    md5: str
    folder: str


ARCHIVES = {
    "cifar10": Download(
        source="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        file_name="cifar-10-binary.tar.gz",
        kind="tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
        folder="cifar-10-batches-bin",
    ),
    "tiny-imagenet": Download(
        source="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        file_name="tiny-imagenet-200.zip",
        kind="zip",
        md5="90528d7ca1a48142e341f4ef8d21d0de",
        folder="tiny-imagenet-200",
    ),
}


@dataclass(frozen=True)
class Checksum:
    algorithm: str
    digest: str


def fetch(
    name: str,
    data_dir: Path | None = None,
    *,
    source: str | None = None,
    sha256: str | None = None,
    md5: str | None = None,
    progress: Progress | None = None,
    retry_pause: float = 1.0,
) -> Path:
    """The folder of the data set `name` in `data_dir`, downloaded where it is not there yet.

    `source` is a mirror of the same archive. The published MD5 is expected unless a checksum is given. The download
    grows in `<archive>.part`, which a later call continues; `progress` is called with (bytes done, total or None).
    """
    if name not in ARCHIVES:
        raise UsageError(f"expected a data set to fetch, one of {', '.join(ARCHIVES)}, found {name!r}")
    archive = ARCHIVES[name]
    url = archive.source if source is None else source
    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"expected a source that begins with http:// or https://, found {url!r}")
    expected = _expected(archive, sha256, md5)
    folder = default_data_dir() if data_dir is None else data_dir.expanduser()
    target = folder / archive.folder
    if target.is_dir() and any(target.iterdir()):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExhumeError(f"expected a folder to write to at {folder}, found: {error.strerror}") from error
    part = folder / f"{archive.file_name}.part"
    # A run that was stopped between download and unpacking needs no server.
    if not _all_match(part, expected):
        download(url, part, progress or _silent, retry_pause)
        _verify(part, archive.file_name, expected)
    try:
        unpack(part, archive.kind, target)
    except BadArchive:
        discard(part)
        raise
    discard(part)
    return target


def _expected(archive: Download, sha256: str | None, md5: str | None) -> tuple[Checksum, ...]:
    if sha256 is None and md5 is None:
        return (Checksum("md5", archive.md5),)
    given = (("sha256", sha256, 64), ("md5", md5, 32))
    for algorithm, digest, length in given:
        if digest is not None and (len(digest) != length or set(digest.lower()) - set("0123456789abcdef")):
            raise UsageError(f"expected {length} hexadecimal digits as {algorithm}, found {digest!r}")
    return tuple(Checksum(algorithm, digest.lower()) for algorithm, digest, _ in given if digest is not None)


def _verify(part: Path, file_name: str, expected: tuple[Checksum, ...]) -> None:
    for checksum in expected:
        found = _digest(part, checksum.algorithm)
        if found != checksum.digest:
            discard(part)
            raise ExhumeError(
                f"expected {checksum.algorithm} {checksum.digest} of {file_name}, found {found}; "
                "the download was removed, run the same command again"
            )


def _all_match(part: Path, expected: tuple[Checksum, ...]) -> bool:
    return part.exists() and all(_digest(part, checksum.algorithm) == checksum.digest for checksum in expected)


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def _silent(done: int, total: int | None) -> None:
    """No progress was asked for."""
