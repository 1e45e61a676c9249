"""Weights files, honest and hostile: nothing in a file is ever run, and none makes the reader larger than it is."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from exhume.errors import ExhumeError
from exhume.observing.weights_file import read_weights

STATE = {"fc.weight": torch.arange(6.0).reshape(2, 3), "fc.bias": torch.ones(2)}


class Runs:
    """What an attacker's pickle would do."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def archive(path: Path, pickled: bytes, compress: int = zipfile.ZIP_STORED) -> Path:
    """A file as torch.save lays it out, with any pickle in it."""
    with zipfile.ZipFile(path, "w", compress) as made:
        made.writestr("archive/data.pkl", pickled)
        made.writestr("archive/byteorder", "little")
        made.writestr("archive/version", "3\n")
    return path


def safetensors(path: Path, header: dict[str, Any], data: bytes = b"", claimed: int | None = None) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if claimed is None else claimed) + text + data)
    return path


def test_safetensors_and_pytorch_files_give_the_same_tensors(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "a.safetensors")
    torch.save(STATE, tmp_path / "a.pt")
    torch.save({"epoch": 3, "state_dict": STATE, "lr": 0.1}, tmp_path / "checkpoint.ckpt")
    for name in ("a.safetensors", "a.pt", "checkpoint.ckpt"):
        found = read_weights(tmp_path / name)
        assert {key: value.tolist() for key, value in found.tensors.items()} == {
            key: value.tolist() for key, value in STATE.items()
        }
        assert found.size == (tmp_path / name).stat().st_size
        assert len(found.sha256()) == 64


def test_wrappers_of_names_are_taken_off(tmp_path: Path) -> None:
    model = nn.DataParallel(nn.Linear(2, 1))
    torch.save(model.state_dict(), tmp_path / "a.pt")
    assert set(read_weights(tmp_path / "a.pt").tensors) == {"weight", "bias"}


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "was-run"
    payload = pickle.dumps({"fc.weight": Runs(marker)}, protocol=protocol)
    for path in (archive(tmp_path / "a.pt", payload), tmp_path / "bare.pkl", tmp_path / "bare.pt"):
        if not path.exists():
            path.write_bytes(payload)
        with pytest.raises(ExhumeError, match=r"safetensors\.torch\.save_file") as refused:
            read_weights(path)
        assert "\n" not in str(refused.value)
    assert not marker.exists()


def test_a_whole_module_is_code_too_and_the_way_out_is_told(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 1), tmp_path / "model.pt")
    with pytest.raises(ExhumeError, match=r"asks for 'torch.nn.modules.linear Linear'.*was not run") as refused:
        read_weights(tmp_path / "model.pt")
    assert "safetensors" in str(refused.value)


@pytest.mark.parametrize("call", [(bytearray, (10**10,)), (set, ((),))])
def test_even_calls_that_torch_allows_are_refused_where_no_tensor_needs_them(
    tmp_path: Path, call: tuple[Any, Any]
) -> None:
    class Makes:
        def __reduce__(self) -> Any:
            return call

    with pytest.raises(ExhumeError, match="that is code, and it was not run"):
        read_weights(archive(tmp_path / "a.pt", pickle.dumps({"x": Makes()}, protocol=2)))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 99]}}, "99 bytes for 'a'"),
        ({"a": {"dtype": "F32", "shape": [50_000, 50_000], "data_offsets": [0, 10**10]}}, "cut off"),
        ({"a": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}}, "shape"),
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "b": {}}, "without"),
        (
            {name: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} for name in "ab"},
            "where byte",
        ),
    ],
)
def test_a_header_that_lies_about_sizes_is_refused(tmp_path: Path, header: dict[str, Any], words: str) -> None:
    with pytest.raises(ExhumeError, match=words):
        read_weights(safetensors(tmp_path / "a.safetensors", header, bytes(16)))


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="a header of 10000000000 bytes in a file of"):
        read_weights(safetensors(tmp_path / "a.safetensors", {}, claimed=10**10))


def test_a_tensor_that_is_larger_than_what_is_stored_of_it_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1).expand(50_000, 50_000)}, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size < 4096
    with pytest.raises(ExhumeError, match="stored in full"):
        read_weights(tmp_path / "a.pt")


def test_an_archive_that_grows_when_it_is_unpacked_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(STATE, buffer)
    with zipfile.ZipFile(buffer) as honest, zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
        for entry in honest.infolist():
            bomb.writestr(entry.filename, honest.read(entry))
        bomb.writestr("archive/data/9", bytes(10**7))
    with pytest.raises(ExhumeError, match="compressed"):
        read_weights(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file"),
        (b"GGUF" + bytes(99), "a GGUF file"),
        (b"\x93NUMPY" + bytes(99), "a NumPy file"),
        (b"", "another format"),
        (b"PK\x03\x04" + bytes(99), "a whole PyTorch file"),
        (b"hello world, hello", "another format"),
    ],
)
def test_other_formats_are_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(ExhumeError, match=words):
        read_weights(tmp_path / "a.bin")


def test_a_script_is_refused_as_code(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/code/__torch__.py", "def forward(self): pass")
        archive.writestr("a/data.pkl", b"\x80\x02}.")
    with pytest.raises(ExhumeError, match="a TorchScript archive, which is code"):
        read_weights(tmp_path / "a.pt")


@pytest.mark.parametrize("loaded", [[torch.zeros(2)], {"a": 3}, {3: torch.zeros(2)}, {}])
def test_what_is_no_state_dict_is_refused(tmp_path: Path, loaded: object) -> None:
    torch.save(loaded, tmp_path / "a.pt")
    with pytest.raises(ExhumeError, match=r"expected (names with )?tensors"):
        read_weights(tmp_path / "a.pt")


def test_names_are_never_paths_and_must_be_printable(tmp_path: Path) -> None:
    tricky = {"../../../etc/passwd": torch.zeros(2), "C:\\x": torch.zeros(2), "<b>": torch.zeros(2)}
    save_file(tricky, tmp_path / "a.safetensors")
    assert set(read_weights(tmp_path / "a.safetensors").tensors) == set(tricky)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    save_file({"a\x1b[2J": torch.zeros(2)}, tmp_path / "b.safetensors")
    with pytest.raises(ExhumeError, match="that can be printed") as refused:
        read_weights(tmp_path / "b.safetensors")
    assert "\x1b" not in str(refused.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="No such file"):
        read_weights(tmp_path / "none.safetensors")
