"""`exhume data fetch` against a server on this machine."""

import dataclasses
import hashlib
import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from exhume_papers.data.fetch import ARCHIVES

Command = Callable[..., subprocess.CompletedProcess[str]]
PART = "cifar-10-binary.tar.gz.part"


def cifar_archive() -> bytes:
    """An archive with eight random images of the classes frog and truck in CIFAR-10's layout."""
    labels = np.array([6, 9] * 4, np.uint8)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    batch = np.concatenate([labels[:, None], pixels], axis=1).tobytes()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        member.size = len(batch)
        archive.addfile(member, io.BytesIO(batch))
    return file.getvalue()


ARCHIVE = cifar_archive()


@dataclasses.dataclass
class Mirror:
    """Serves ARCHIVE with ranges. `cut` bytes are sent at most per answer, None: all."""

    cut: int | None = None
    url: str = ""
    asked: list[str | None] = dataclasses.field(default_factory=list)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("exhume_papers.data.download.time.sleep", lambda seconds: None)
    mirror = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            mirror.asked.append(wanted)
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{len(ARCHIVE) - 1}/{len(ARCHIVE)}")
            self.send_header("Content-Length", str(len(ARCHIVE) - start))
            self.end_headers()
            self.wfile.write(ARCHIVE[start:][: mirror.cut])

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    mirror.url = f"http://127.0.0.1:{server.server_address[1]}/archive"
    yield mirror
    server.shutdown()
    server.server_close()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the test's own archive were the published one."""
    archive = dataclasses.replace(ARCHIVES["cifar10"], md5=hashlib.md5(ARCHIVE).hexdigest())
    monkeypatch.setitem(ARCHIVES, "cifar10", archive)


@pytest.mark.usefixtures("published")
def test_what_was_fetched_can_be_trained_on(exhume: Command, mirror: Mirror, tmp_path: Path) -> None:
    fetched = exhume("data", "fetch", "cifar10", "--source", mirror.url, "--data-dir", tmp_path / "data", "--json")
    assert fetched.returncode == 0, fetched.stderr
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    assert json.loads(fetched.stdout) == {"name": "cifar10", "folder": str(folder)}
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-bin"]
    images = ("--data", "cifar10", "--data-dir", tmp_path / "data", "--samples", 4, "--side", 4, "--params", 50)
    trained = exhume("train", "rf", *images, "--out", tmp_path / "run")
    assert "2 frog, 2 truck" in trained.stdout
    again = exhume("data", "fetch", "cifar10", "--source", mirror.url, "--data-dir", tmp_path / "data")
    assert again.stdout == f"cifar10 is in {folder}\n"
    assert len(mirror.asked) == 1, "what is there is not fetched again"


def test_another_archive_than_the_published_one_is_refused_and_removed(
    exhume: Command, mirror: Mirror, tmp_path: Path
) -> None:
    refused = exhume("data", "fetch", "cifar10", "--source", mirror.url, "--data-dir", tmp_path / "data")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    found = hashlib.md5(ARCHIVE).hexdigest()
    assert refused.stderr.startswith(f"exhume: expected md5 {ARCHIVES['cifar10'].md5}")
    assert f"found {found}" in refused.stderr
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.usefixtures("published")
def test_a_download_that_breaks_off_is_continued_by_the_same_command(
    exhume: Command, mirror: Mirror, tmp_path: Path
) -> None:
    request = ("data", "fetch", "cifar10", "--source", mirror.url, "--data-dir", tmp_path / "data")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / PART).write_bytes(ARCHIVE[:7000])
    mirror.cut = 0
    broken = exhume(*request)
    assert broken.returncode == 1
    assert broken.stderr.count("\n") == 1
    assert "after 7,000 bytes; run the same command again to continue" in broken.stderr
    assert (tmp_path / "data" / PART).read_bytes() == ARCHIVE[:7000]
    mirror.cut = None
    assert exhume(*request).returncode == 0
    assert mirror.asked[-1] == "bytes=7000-"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-bin"]
