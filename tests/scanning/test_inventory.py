"""Folders with tricks: links, loops, files that are none; and how long a large one takes."""

import os
import struct
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from exhume.errors import ExhumeError
from exhume.scanning.scan import scan


def test_links_are_followed_to_files_inside_and_nowhere_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    save_file({"x_train": np.zeros((3, 2), np.float32)}, outside / "secret.safetensors")
    inside = tmp_path / "inside"
    (inside / "blobs").mkdir(parents=True)
    save_file({"x_train": np.zeros((3, 2), np.float32)}, inside / "blobs" / "abc")
    (inside / "out.safetensors").symlink_to(outside / "secret.safetensors")
    (inside / "model.safetensors").symlink_to(inside / "blobs" / "abc")
    (inside / "loop").symlink_to(inside)
    (inside / "self").symlink_to(inside / "self")
    (inside / "gone").symlink_to(inside / "nothing")
    os.mkfifo(inside / "pipe")
    done = scan(inside)
    assert [finding.where for finding in done.findings] == ["model.safetensors: x_train"]
    reasons = {item.name: item.reason for item in done.unread}
    assert set(reasons) == {"out.safetensors", "loop", "self", "gone", "pipe"}
    assert "leads out of the folder" in reasons["out.safetensors"]
    assert "a link to a folder" in reasons["loop"]


def test_a_file_that_cannot_be_read_costs_a_line_and_not_the_others(tmp_path: Path) -> None:
    save_file({"x_train": np.zeros((3, 2), np.float32)}, tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").write_bytes(struct.pack("<Q", 2**50))
    done = scan(tmp_path)
    assert [finding.rule for finding in done.findings] == ["data-array"]
    assert [item.name for item in done.unread] == ["b.safetensors"]
    (tmp_path / "a.safetensors").unlink()
    assert scan(tmp_path).answer.value == "unknown"


def test_a_damaged_array_hides_nothing_in_other_files(tmp_path: Path) -> None:
    """The numbers of support vectors are read: where those of one file cannot be, the other file still counts."""
    from sklearn.svm import SVC

    from published_files import fitted, save_skops

    machine = fitted(SVC())
    save_skops(machine, tmp_path / "whole.skops")
    damaged = bytearray(save_skops(machine, tmp_path / "a.skops").read_bytes())
    place = damaged.index(machine.support_.tobytes())
    damaged[place] ^= 1  # its checksum is wrong then
    (tmp_path / "a.skops").write_bytes(damaged)
    done = scan(tmp_path)
    assert [finding.where.partition(":")[0] for finding in done.findings] == ["whole.skops"]
    assert [item.name for item in done.unread] == ["a.skops"]


def test_names_that_would_change_a_terminal_are_shown_quoted(tmp_path: Path) -> None:
    (tmp_path / "train\x1b[2J.csv").write_text("a")
    (finding,) = scan(tmp_path).findings
    assert "\x1b" not in finding.where


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="found no such path"):
        scan(tmp_path / "none")
    with pytest.raises(ExhumeError, match="found neither"):
        scan(Path("/dev/null"))


def test_two_gigabytes_take_seconds(tmp_path: Path) -> None:
    """Files with holes, as large as shards are; what is never read need not be there."""
    for shard in range(2):
        header = b'{"w%d": {"dtype": "F32", "shape": [16384, 16384], "data_offsets": [0, 1073741824]}}' % shard
        with (tmp_path / f"m-{shard}.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + 2**30)
    began = time.monotonic()
    done = scan(tmp_path)
    assert time.monotonic() - began < 2
    assert done.inventory.size > 2 * 10**9
    assert (done.answer.value, done.unread) == ("no", ())


def test_a_scan_without_pytorch_files_needs_no_torch(tmp_path: Path) -> None:
    import subprocess

    np.savez(tmp_path / "a.npz", x_train=np.zeros((3, 2)))
    code = (
        "import sys, pathlib; from exhume.scanning.scan import scan; "
        f"scan(pathlib.Path({str(tmp_path)!r})); print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout == "False\n"
