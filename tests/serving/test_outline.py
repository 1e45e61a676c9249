"""The first look: some parts of a file say the same as the whole, and what is no such parts is refused."""

import io
import json
import math
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from exhume.serving.findings import FIRST_LOOK, scan_file
from exhume.serving.measuring import measure

NET = {"0.weight": torch.randn(300, 80), "0.bias": torch.randn(300), "2.weight": torch.randn(10, 300)}
NORM = {**NET, "bn.num_batches_tracked": torch.tensor(3)}
SMALL = 2**16


def packed(parts: list[tuple[int, bytes]]) -> bytes:
    """As the page sends them."""
    line = json.dumps([[start, len(content)] for start, content in parts]).encode()
    return line + b"\n" + b"".join(content for _, content in parts)


def of_safetensors(whole: bytes) -> bytes:
    """The header, and tensors of one number."""
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    places = [part["data_offsets"] for name, part in json.loads(whole[8:end]).items() if name != "__metadata__"]
    alone = sorted((end + start, whole[end + start : end + stop]) for start, stop in places if stop - start <= 64)
    return packed([(0, whole[:end]), *alone])


def of_zip(whole: bytes) -> bytes:
    """The list at the end, the head of every entry, and the pickle. Naive: the page's script does the same in bytes."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entries, listed = archive.infolist(), archive.start_dir
    keep = bytearray(len(whole))
    for entry in entries:
        small = entry.compress_size if entry.compress_size <= SMALL or entry.filename.endswith("data.pkl") else 0
        stop = min(entry.header_offset + 30 + len(entry.filename) + 256 + small, listed)
        keep[entry.header_offset : stop] = b"\1" * (stop - entry.header_offset)
    keep[listed:] = b"\1" * (len(whole) - listed)
    parts, start = [], 0
    while (start := keep.find(1, start)) >= 0:
        stop = keep.find(0, start)
        stop = len(whole) if stop < 0 else stop
        parts.append((start, whole[start:stop]))
        start = stop
    return packed(parts)


def saved(state: dict[str, torch.Tensor]) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def peek(ask: Any, name: str, size: int, body: bytes) -> Any:
    return ask("POST", "outlines", params={"name": name, "size": size}, content=body)


@pytest.mark.parametrize("state", [NET, NORM], ids=["net", "norm"])
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_parts_say_the_same_as_the_whole(ask: Any, state: dict[str, torch.Tensor], kind: str) -> None:
    whole = save(state) if kind == "safetensors" else saved(state)
    body = of_safetensors(whole) if kind == "safetensors" else of_zip(whole)
    assert len(body) < len(whole) / 2
    first = peek(ask, f"net.{kind}", len(whole), body).json()
    then = ask.drop(f"net.{kind}", whole).json()
    assert first["measured"] == then["measured"]
    assert first["scan"]["sentence"] == f"{FIRST_LOOK} {then['scan']['sentence']}"
    assert first["scan"]["findings"] == then["scan"]["findings"]
    assert [path.name for path in ask.settings.private.iterdir()] == ["uploads"], "nothing of a first look stays"


def test_half_a_gigabyte_is_answered_within_two_seconds(ask: Any, tmp_path: Path) -> None:
    """The gauge and the scan of a file that is dropped, by its header; then of the whole file, most of which is a
    hole. On a machine that does other work too, by processor time. benchmarks/serve_answer.py drops files in
    a browser."""
    side, layers = 4096, 8
    shapes = {f"{index}.weight": (side, side) for index in range(layers)} | {f"{layers}.weight": (10, side)}
    header, size = {}, 0
    for name, shape in shapes.items():
        stop = size + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [size, stop]}
        size = stop
    told = json.dumps(header).encode()
    start = struct.pack("<Q", len(told)) + told
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + size)
    assert len(start) + size > 500_000_000
    peek(ask, "warm.safetensors", len(save(NET)), of_safetensors(save(NET)))
    answers: tuple[Callable[[], Any], ...] = (
        lambda: peek(ask, "large.safetensors", len(start) + size, packed([(0, start)])).json(),
        lambda: {"measured": measure(path).to_json(), "scan": scan_file(path)},
    )
    for answer in answers:
        wall, worked = time.monotonic(), time.process_time()
        said = answer()
        assert min(time.monotonic() - wall, time.process_time() - worked) < 2
        assert said["measured"]["p"] == 10 * side
        assert "Is training data in here?" in said["scan"]["sentence"]


def test_numbers_that_have_not_arrived_are_not_compared(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole reads as zeros; no finding may rest on it."""

    def found(inventory: Any) -> Any:
        raise AssertionError("numbers were read")

    monkeypatch.setattr("exhume.scanning.scan.READ_NUMBERS", (found,))
    monkeypatch.setattr("exhume.scanning.scan.FINDERS", (found,))
    whole = save(NET)
    assert peek(ask, "a.safetensors", len(whole), of_safetensors(whole)).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]x",
        b"{}\n",
        b"[[0]]\n",
        b'[["0", 1]]\nx',
        b"[[0, 5]]\nabc",
        b"[[0, 1]]\nabc",
        b"[[-1, 1]]\na",
        b"[[0, -1]]\n",
        b"[[5, 1], [0, 1]]\nab",
        b"[[0, 2], [1, 1]]\nabc",
        b"[[99, 2]]\nab",
        b"[[true, 1]]\na",
        b"[[0, 1e3]]\na",
        b"[" * 100_000 + b"\n",
        json.dumps([[0, 0]] * 100_001).encode() + b"\n",
    ],
)
def test_what_is_no_parts_of_the_file_is_refused(ask: Any, body: bytes) -> None:
    found = peek(ask, "a.safetensors", 100, body)
    assert (found.status_code, "expected parts" in found.json()["problem"]) == (422, True)
    assert not list(ask.settings.private.glob("outline-*"))


@pytest.mark.parametrize("size", ["", "-1", "x", str(2**40), "9" * 16])
def test_a_size_that_no_file_here_has_is_refused(ask: Any, size: str) -> None:
    assert ask("POST", "outlines", params={"name": "a", "size": size}, content=b"[]\n").status_code == 422


def test_an_outline_is_small_and_its_name_leads_nowhere(ask: Any) -> None:
    assert peek(ask, "a", 10, bytes(17 * 2**20)).status_code == 413
    for name in ("../../../etc/passwd", "/etc/passwd", "..", "a\0b", "a" * 5000):
        told = peek(ask, name, 10, b"[[0, 2]]\nab").json()
        assert "/" not in told["name"]
        assert str(ask.settings.private) not in json.dumps(told)
    assert not list(ask.settings.private.glob("outline-*"))
