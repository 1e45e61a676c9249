import hashlib
import io
import random
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from exhume.errors import ExhumeError, UsageError
from exhume_papers.data.fetch import ARCHIVES, fetch

PART = "cifar-10-binary.tar.gz.part"


def tar_bytes(name: str = "cifar-10-batches-bin/data_batch_1.bin") -> bytes:
    """An archive of some 200 kB that does not compress."""
    content = random.Random(0).randbytes(200_000)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


ARCHIVE = tar_bytes()
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()


@dataclass
class Server:
    """What the server holds and how it misbehaves; it writes down the requests it got."""

    content: bytes = ARCHIVE
    ranges: bool = True
    etag: str | None = '"one"'
    length: bool = True
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    wrong_range: bool = False
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append(headers)
        if self.statuses:
            handler.send_error(self.statuses.pop(0))
            return
        start = 0
        fresh = headers.get("if-range", self.etag) == self.etag
        if self.ranges and "range" in headers and fresh:
            start = int(headers["range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(self.content):
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{len(self.content)}")
                handler.end_headers()
                return
            handler.send_response(206)
            claimed = 0 if self.wrong_range else start
            handler.send_header("Content-Range", f"bytes {claimed}-{len(self.content) - 1}/{len(self.content)}")
        else:
            handler.send_response(200)
        if self.length:
            handler.send_header("Content-Length", str(len(self.content) - start))
        if self.etag is not None:
            handler.send_header("ETag", self.etag)
        handler.end_headers()
        end = start + self.cuts.pop(0) if self.cuts else len(self.content)
        handler.wfile.write(self.content[start:end])


Start = Callable[[Server], Server]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running: list[ThreadingHTTPServer] = []

    def begin(server: Server) -> Server:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.append(listening)
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        server.url = f"http://127.0.0.1:{listening.server_address[1]}/archive"
        return server

    yield begin
    for listening in running:
        listening.shutdown()
        listening.server_close()


def get(server: Server, folder: Path, sha256: str = SHA256) -> Path:
    return fetch("cifar10", folder, source=server.url, sha256=sha256, retry_pause=0.0)


def assert_complete(folder: Path) -> None:
    """The data set and nothing else: no archive, no part, no temporary folder."""
    assert [path.name for path in folder.iterdir()] == ["cifar-10-batches-bin"]
    assert (folder / "cifar-10-batches-bin" / "data_batch_1.bin").stat().st_size == 200_000


def ranges(server: Server) -> list[str | None]:
    return [headers.get("range") for headers in server.requests]


def test_a_whole_download_is_unpacked_and_reported(start: Start, tmp_path: Path) -> None:
    server = start(Server())
    reported: list[tuple[int, int | None]] = []
    target = fetch(
        "cifar10",
        tmp_path / "new" / "folder",
        source=server.url,
        md5=hashlib.md5(ARCHIVE).hexdigest().upper(),
        progress=lambda done, total: reported.append((done, total)),
    )
    assert target == tmp_path / "new" / "folder" / "cifar-10-batches-bin"
    assert_complete(tmp_path / "new" / "folder")
    assert reported[0] == (0, len(ARCHIVE))
    assert reported[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert reported == sorted(reported)


def test_a_data_set_that_is_there_is_not_fetched_again(start: Start, tmp_path: Path) -> None:
    server = start(Server())
    assert get(server, tmp_path) == get(server, tmp_path)
    assert len(server.requests) == 1


def test_a_zip_archive_is_fetched_too(start: Start, tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tiny-imagenet-200/wnids.txt", "n01\n")
    server = start(Server(content=file.getvalue()))
    digest = hashlib.sha256(file.getvalue()).hexdigest()
    target = fetch("tiny-imagenet", tmp_path, source=server.url, sha256=digest)
    assert (target / "wnids.txt").read_text() == "n01\n"


def test_a_download_cut_off_half_way_continues(start: Start, tmp_path: Path) -> None:
    half = len(ARCHIVE) // 2
    server = start(Server(cuts=[half]))
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert ranges(server) == [None, f"bytes={half}-"]
    assert server.requests[1]["if-range"] == '"one"'


def test_many_cuts_are_survived_as_long_as_each_attempt_comes_further(start: Start, tmp_path: Path) -> None:
    server = start(Server(cuts=[20_000] * 9))
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert len(server.requests) == 10


def test_a_server_without_ranges_starts_again_from_zero(start: Start, tmp_path: Path) -> None:
    server = start(Server(ranges=False, etag=None, cuts=[len(ARCHIVE) // 2]))
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert len(server.requests) == 2


def test_a_server_without_lengths_is_judged_by_the_checksum(start: Start, tmp_path: Path) -> None:
    get(start(Server(length=False)), tmp_path)
    assert_complete(tmp_path)


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_strong_tag_no_condition_is_sent(start: Start, tmp_path: Path, etag: str | None) -> None:
    server = start(Server(etag=etag, cuts=[1000]))
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert ranges(server) == [None, "bytes=1000-"]
    assert "if-range" not in server.requests[1]


def test_a_part_of_an_earlier_run_is_continued(start: Start, tmp_path: Path) -> None:
    (tmp_path / PART).write_bytes(ARCHIVE[:1234])
    server = start(Server())
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert ranges(server) == ["bytes=1234-"]


def test_a_file_that_changed_on_the_server_is_taken_anew(start: Start, tmp_path: Path) -> None:
    (tmp_path / PART).write_bytes(b"old" * 500)
    (tmp_path / f"{PART}.etag").write_text('"zero"')
    server = start(Server())
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert server.requests[0]["if-range"] == '"zero"'


def test_a_complete_part_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / PART).write_bytes(ARCHIVE)
    get(Server(url="http://127.0.0.1:1/"), tmp_path)
    assert_complete(tmp_path)


def test_a_part_as_long_as_the_file_but_wrong_fails_the_checksum(start: Start, tmp_path: Path) -> None:
    (tmp_path / PART).write_bytes(bytes(len(ARCHIVE)))
    with pytest.raises(ExhumeError, match=f"expected sha256 {SHA256} of cifar-10-binary.tar.gz, found [0-9a-f]{{64}};"):
        get(start(Server()), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_part_longer_than_the_file_is_thrown_away(start: Start, tmp_path: Path) -> None:
    (tmp_path / PART).write_bytes(bytes(len(ARCHIVE) + 1))
    server = start(Server())
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert ranges(server) == [f"bytes={len(ARCHIVE) + 1}-", None]


def test_an_answer_for_other_bytes_is_not_glued_on(start: Start, tmp_path: Path) -> None:
    (tmp_path / PART).write_bytes(ARCHIVE[:1000])
    server = start(Server(wrong_range=True))
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert ranges(server) == ["bytes=1000-", None]


def test_a_busy_server_is_asked_again(start: Start, tmp_path: Path) -> None:
    server = start(Server(statuses=[503, 429]))
    get(server, tmp_path)
    assert_complete(tmp_path)


def test_a_wrong_checksum_removes_the_file(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ExhumeError) as caught:
        get(start(Server()), tmp_path, sha256="0" * 64)
    assert f"expected sha256 {'0' * 64}" in str(caught.value)
    assert f"found {SHA256}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_published_checksum_holds_for_a_mirror_without_one(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match=f"expected md5 {ARCHIVES['cifar10'].md5}"):
        fetch("cifar10", tmp_path, source=start(Server()).url)


def test_a_hostile_archive_is_refused_and_removed(start: Start, tmp_path: Path) -> None:
    hostile = tar_bytes("../evil")
    home = tmp_path / "home"
    with pytest.raises(ExhumeError, match=r"found '\.\./evil'; refused"):
        get(start(Server(content=hostile)), home, sha256=hashlib.sha256(hostile).hexdigest())
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert list(home.iterdir()) == []


def test_a_server_that_stays_gone_says_how_far_it_came_and_keeps_the_part(tmp_path: Path, start: Start) -> None:
    server = start(Server(cuts=[5000] + [0] * 99))
    with pytest.raises(ExhumeError, match="after 5,000 bytes; run the same command again to continue") as caught:
        get(server, tmp_path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / PART).read_bytes() == ARCHIVE[:5000]
    server.cuts.clear()
    get(server, tmp_path)
    assert_complete(tmp_path)
    assert ranges(server)[-1] == "bytes=5000-"


def test_a_server_without_ranges_that_always_cuts_is_given_up(start: Start, tmp_path: Path) -> None:
    server = start(Server(ranges=False, cuts=[5000] * 99))
    with pytest.raises(ExhumeError, match="after 5,000 bytes"):
        get(server, tmp_path)
    assert len(server.requests) == 5


def test_no_server_at_all_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    listening = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = listening.server_address[1]
    listening.server_close()
    with pytest.raises(ExhumeError, match=r"found no connection .* after 0 bytes") as caught:
        get(Server(url=f"http://127.0.0.1:{port}/archive"), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_not_asked_for_again(start: Start, tmp_path: Path) -> None:
    server = start(Server(statuses=[404]))
    with pytest.raises(ExhumeError, match=r"expected a file at .*, found HTTP 404"):
        get(server, tmp_path)
    assert len(server.requests) == 1


def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExhumeError, match="expected a folder to write to"):
        get(Server(url="http://127.0.0.1:1/"), tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("name", "source", "sha256", "expected", "found"),
    [
        ("mnist", None, None, "cifar10, tiny-imagenet", "'mnist'"),
        ("cifar10", "archive.tar.gz", None, "http://", "'archive.tar.gz'"),
        ("cifar10", "file:///etc/passwd", None, "http://", "'file:///etc/passwd'"),
        ("cifar10", None, "abc", "64 hexadecimal digits", "'abc'"),
        ("cifar10", None, "x" * 64, "64 hexadecimal digits", "x"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    tmp_path: Path, name: str, source: str | None, sha256: str | None, expected: str, found: str
) -> None:
    with pytest.raises(UsageError) as caught:
        fetch(name, tmp_path, source=source, sha256=sha256)
    message = str(caught.value)
    assert "\n" not in message
    assert expected in message.partition("found")[0]
    assert found in message.partition("found")[2]
