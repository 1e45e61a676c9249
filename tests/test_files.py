import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exhume import files
from exhume.errors import ExhumeError
from exhume.files import read_json, read_tensors, replacing, require_tensors, write_json, write_tensors, write_text


def one_line(call: Callable[[], object]) -> str:
    with pytest.raises(ExhumeError) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def test_replacing_gives_the_new_file_its_name_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "deep" / "er" / "a.txt", "ä")
    assert (tmp_path / "deep" / "er" / "a.txt").read_text(encoding="utf-8") == "ä"
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("failure", [RuntimeError("x"), KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("folder", [False, True])
def test_replacing_leaves_the_old_file_and_no_temporary_one_after_a_failure(
    tmp_path: Path, failure: BaseException, folder: bool
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write_and_fail() -> None:
        with replacing(target, folder) as temporary:
            if folder:
                (temporary / "half").write_text("new")
            else:
                temporary.write_text("new")
            raise failure

    with pytest.raises(ExhumeError if isinstance(failure, OSError) else type(failure)):
        write_and_fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_replacing_makes_a_whole_folder_appear_at_once(tmp_path: Path) -> None:
    with replacing(tmp_path / "run", folder=True) as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "run").exists()
    assert (tmp_path / "run" / "a").read_text() == "1"


@pytest.mark.parametrize("name", ["file/a.json", "file/deeper/a.json", "folder", "x" * 250])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    message = one_line(lambda: write_text(tmp_path / name, "1"))
    assert str(tmp_path / name) in message
    assert one_line(lambda: write_tensors(tmp_path / name, "thing", {"a": torch.ones(1)}, {}))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_is_one_line_and_keeps_the_old_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, "thing", {"a": torch.ones(1)}, {})
    before = path.read_bytes()

    def fail(tensors: object, filename: Path, metadata: object) -> None:
        from safetensors import SafetensorError

        filename.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    message = one_line(lambda: write_tensors(path, "thing", {"a": torch.zeros(1)}, {}))
    assert "No space left" in message
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("kind", "mode"), [("truth", 0o600), ("training-checkpoint", 0o600), ("thing", 0o664)])
def test_a_file_is_written_where_nobody_else_looks_and_has_its_permissions_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: int
) -> None:
    seen = []

    def write_in_place(tensors: dict[str, Tensor], filename: Path, metadata: dict[str, str]) -> None:
        seen.append(stat.S_IMODE(filename.parent.stat().st_mode))
        save_file(tensors, filename, metadata=metadata)

    monkeypatch.setattr("safetensors.torch.save_file", write_in_place)
    umask = os.umask(0o002)
    try:
        write_tensors(tmp_path / "a.safetensors", kind, {"a": torch.ones(1)}, {})
    finally:
        os.umask(umask)
    assert seen == [0o700]
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == mode


def test_json_comes_back_and_refuses_nan(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {"a": 0.1 + 0.2, "b": [1, None, "ü"], "c": {"d": True}}
    write_json(path, value)
    assert read_json(path) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == value


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3", b"\xff\xfe{", b"[" * 100_000, b'{"a": 1} x'])
def test_something_else_than_a_json_object_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert str(path) in one_line(lambda: read_json(path))


def test_a_missing_json_file_or_a_folder_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in one_line(lambda: read_json(tmp_path / "a.json"))
    assert "directory" in one_line(lambda: read_json(tmp_path))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool]
)
def test_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "a.safetensors"
    values = (torch.randn(4, 6, generator=torch.Generator().manual_seed(0)) * 50).to(dtype)
    tensors = {
        "plain": values,
        "transposed": values.T,
        "strided": values[:, ::2],
        "empty": values[:0],
        "one": values[0],
    }
    write_tensors(path, "thing", tensors, {"list": [1.5, None, "a"], "deep": {"x": 1e-300}})
    file = read_tensors(path, "thing")
    assert file.meta == {"kind": "thing", "schema": 1, "list": [1.5, None, "a"], "deep": {"x": 1e-300}}
    assert file.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert file.tensors[name].dtype == dtype
        assert torch.equal(file.tensors[name], tensor)


def _with_metadata(path: Path, text: str) -> None:
    save_file({"a": torch.ones(1)}, path, metadata={"exhume": text})


def test_a_file_of_another_kind_schema_or_origin_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, "truth", {"a": torch.ones(1)}, {})
    assert "found 'truth'" in one_line(lambda: read_tensors(path, "observation"))
    save_file({"a": torch.ones(1)}, path)
    assert "did not write" in one_line(lambda: read_tensors(path, "observation"))
    for text in ("3", "[]", '{"kind": "a\\nb"}', '{"kind": ["thing"]}', "{", "[" * 100_000):
        _with_metadata(path, text)
        one_line(lambda: read_tensors(path, "thing"))
    for schema in (0, 2, "1\n", None):
        _with_metadata(path, json.dumps({"kind": "thing", "schema": schema}))
        assert "expected schema 1" in one_line(lambda: read_tensors(path, "thing"))


def test_every_truncation_of_a_tensor_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, "thing", {"a": torch.ones(5)}, {})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        one_line(lambda: read_tensors(path, "thing"))


def test_a_missing_file_is_one_line_that_names_its_kind(tmp_path: Path) -> None:
    message = one_line(lambda: read_tensors(tmp_path / "a.safetensors", "reconstruction"))
    assert message == f"expected the reconstruction file {tmp_path / 'a.safetensors'}, found no such file"


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    torch.save({"weights": torch.ones(3)}, path)
    assert "whole safetensors file" in one_line(lambda: read_tensors(path, "thing"))


def test_required_tensors_are_named_when_they_are_missing(tmp_path: Path) -> None:
    file = files.TensorFile({"a": torch.ones(1)}, {})
    require_tensors(file, tmp_path, "a")
    assert "found none named b, c" in one_line(lambda: require_tensors(file, tmp_path, "a", "b", "c"))
