"""Files that are dropped: private, bounded, gone when something goes wrong, and measured at once."""

import asyncio
import json
import stat
import struct
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.serving.settings import ServeSettings
from exhume.serving.uploads import LONGEST_NAME, Refused, Uploads, safe_name


def run_alone(work: Coroutine[Any, Any, Any]) -> Any:
    """In a thread of its own: a browser that another test opened keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def safetensors(shapes: dict[str, list[int]], cut: int = 0) -> bytes:
    """A file of zeros."""
    header, place = {}, 0
    for name, shape in shapes.items():
        size = 4
        for side in shape:
            size *= side
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    return (struct.pack("<Q", len(text)) + text + bytes(place))[: None if not cut else -cut]


NET = {"0.weight": [30, 8], "0.bias": [30], "10.weight": [2, 30], "2.weight": [30, 30]}


def kept(server: Any) -> list[Path]:
    return [path for path in (server.settings.private / "uploads").rglob("*") if path.is_file()]


def test_a_file_is_kept_for_the_owner_alone_and_measured_by_its_header(ask: Any) -> None:
    told = ask.drop("net.safetensors", safetensors(NET)).json()
    (path,) = kept(ask)
    assert path.read_bytes() == safetensors(NET)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, ask.settings.private)} == {0o700}
    found = told["measured"]
    assert (found["head"], found["first"], found["p"], found["d"]) == ("10.weight", "0.weight", 60, 8)
    assert found["parameters"] == 30 * 8 + 30 + 60 + 900
    assert ask("DELETE", f"files/{told['key']}").status_code == 200
    assert kept(ask) == []
    assert ask("DELETE", f"files/{told['key']}").status_code == 404


def test_what_is_no_weights_is_said_without_the_folder(ask: Any) -> None:
    for name, content in (
        ("a.safetensors", safetensors(NET, cut=5)),
        ("b.pt", b"PK\x03\x04rest"),
        ("c.pkl", b"\x80\x04."),
    ):
        told = ask.drop(name, content).json()
        assert told["problem"].startswith("expected")
        assert str(ask.settings.private) not in told["problem"]
        assert name in told["problem"]


@pytest.mark.parametrize(
    ("name", "kept_as"),
    [
        ("../../../etc/cron.d/x", "x"),
        ("..\\..\\x.pt", "x.pt"),
        ("/etc/passwd", "passwd"),
        ("a\x00b\n.pt", "ab.pt"),
        ("", "file"),
        ("...", "file"),
        ("--out=x", "out=x"),
        ("Gewichte ä \u4e2d\u6587 \U0001f600.safetensors", "Gewichte ä \u4e2d\u6587 \U0001f600.safetensors"),
        ("<img src=x onerror=alert(1)>.pt", "_img src=x onerror=alert(1)_.pt"),
    ],
)
def test_a_name_leads_nowhere(ask: Any, name: str, kept_as: str) -> None:
    assert ask.drop(name, b"x").json()["name"] == kept_as
    (path,) = kept(ask)
    assert path.name == kept_as
    assert path.parent.parent == ask.settings.private / "uploads"


@given(st.text())
def test_any_name_is_one_part_of_a_path(name: str) -> None:
    safe = safe_name(name)
    assert safe == Path(safe).name
    assert safe not in (".", "..")
    assert safe.isprintable()
    assert 0 < len(safe.encode()) <= LONGEST_NAME
    assert safe[0] not in "-.~"
    assert safe_name(safe) == safe


def test_what_is_too_large_is_refused_and_nothing_of_it_stays(server: Any) -> None:
    ask = server(largest_upload=100)
    found = ask.drop("a", b"x" * 101)
    assert found.status_code == 413
    assert "at most 100 bytes" in found.json()["problem"]

    def undeclared() -> Any:
        for _ in range(5):
            yield b"x" * 30

    assert ask("POST", "files?name=b", content=undeclared()).status_code == 413
    assert kept(ask) == []
    assert ask.drop("c", b"x" * 100).status_code == 200


def test_only_so_many_files_are_kept(server: Any) -> None:
    ask = server(most_files=2)
    codes = [ask.drop("a", b"x").status_code for _ in range(3)]
    assert codes == [200, 200, 409]


def test_many_at_once_arrive_whole(server: Any) -> None:
    ask = server(uploads_at_once=20)
    contents = [bytes([index]) * 300_000 for index in range(12)]
    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(lambda content: ask.drop("same name", content).status_code, contents))
    assert codes == [200] * 12
    assert sorted(path.read_bytes() for path in kept(ask)) == sorted(contents)


def take(uploads: Uploads, chunks: AsyncIterator[bytes], declared: int | None = None) -> Any:
    return run_alone(uploads.take("a", declared, chunks))


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(ServeSettings(tmp_path, tmp_path / "out", 1, "t", patience=0.05, uploads_at_once=2))


def test_an_upload_that_stands_still_is_given_up(uploads: Uploads) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(60)

    with pytest.raises(Refused, match="the rest of a") as refused:
        take(uploads, slow())
    assert refused.value.status == 408
    assert list(uploads.folder.iterdir()) == []
    assert uploads.under_way == 0


def test_an_upload_that_comes_in_drops_is_given_up(uploads: Uploads) -> None:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)  # well within the patience of 0.05 s for each of them

    with pytest.raises(Refused, match="too slowly") as refused:
        take(uploads, drops())
    assert refused.value.status == 408
    assert uploads.under_way == 0
    assert list(uploads.folder.iterdir()) == []


def test_a_file_that_ends_early_or_breaks_off_is_not_kept(uploads: Uploads) -> None:
    async def short() -> AsyncIterator[bytes]:
        yield b"x"

    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise RuntimeError("the other side has left")

    with pytest.raises(Refused, match="expected 2 bytes of a, found 1"):
        take(uploads, short(), declared=2)
    with pytest.raises(RuntimeError):
        take(uploads, broken())
    assert list(uploads.folder.iterdir()) == []
    assert uploads.files == {}


def test_more_uploads_than_allowed_wait_outside(uploads: Uploads) -> None:
    async def endless() -> AsyncIterator[bytes]:
        await asyncio.sleep(60)
        yield b"x"

    async def three() -> list[Any]:
        tasks = [asyncio.create_task(uploads.take("a", None, endless())) for _ in range(3)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert sorted(problem.status for problem in run_alone(three())) == [408, 408, 503]
