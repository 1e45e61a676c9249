import json
import struct
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from exhume.errors import ExhumeError
from exhume.files import write_tensors
from exhume.tensor_header import read_header

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
}


def write_raw(path: Path, header: bytes, data: bytes = b"", length: int | None = None) -> None:
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)


def refusal(path: Path) -> str:
    with pytest.raises(ExhumeError) as caught:
        read_header(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    assert str(path) in message
    return message


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.text(max_size=5).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 4), max_size=3)),
        max_size=4,
    )
)
def test_the_header_agrees_with_safetensors_own_view(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, tuple[str, list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("agree") / "a.safetensors"
    save_file({name: torch.zeros(shape, dtype=DTYPES[dtype]) for name, (dtype, shape) in contents.items()}, path)
    header = read_header(path)
    with safe_open(path, framework="pt") as file:
        theirs = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        assert header.entries.keys() == theirs.keys()
        for name, view in theirs.items():
            assert header.entries[name].dtype == view.get_dtype()
            assert list(header.entries[name].shape) == view.get_shape()
    assert header.parameters == sum(torch.Size(shape).numel() for _, shape in contents.values())
    assert header.exhume == {}


def test_start_is_where_the_numbers_are(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {"a": torch.arange(5.0), "b": torch.arange(6, dtype=torch.float64).reshape(2, 3) + 0.5}
    save_file(tensors, path)
    raw = path.read_bytes()
    for name, entry in read_header(path).entries.items():
        assert raw[entry.start : entry.stop] == tensors[name].numpy().tobytes()


def test_what_exhume_wrote_about_its_file_is_there(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", "thing", {"a": torch.ones(2)}, {"x": [1, 2]})
    assert read_header(tmp_path / "a").exhume == {"kind": "thing", "schema": 1, "x": [1, 2]}


def test_a_file_of_five_gigabytes_is_read_in_no_time(tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    entry = {"dtype": "F32", "shape": [125_000, 10_000], "data_offsets": [0, 5 * 10**9]}
    header = json.dumps({"V": entry}).encode()
    write_raw(path, header)
    with path.open("r+b") as file:
        file.truncate(8 + len(header) + 5 * 10**9)
    began = time.monotonic()
    assert read_header(path).parameters == 1_250_000_000
    assert time.monotonic() - began < 1


def entry_of(shape: object, begin: object, end: object, dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE_FIELDS: dict[str, object] = {
    "more data than the file has": {"a": entry_of([2_500_000_000], 0, 10**10)},
    "more numbers than bytes": {"a": entry_of([100], 0, 16)},
    "fewer numbers than bytes": {"a": entry_of([1], 0, 16)},
    "negative begin": {"a": entry_of([5], -4, 16)},
    "negative range": {"a": entry_of([4], 32, 16)},
    "negative sides": {"a": entry_of([-2, -2], 0, 16)},
    "overlapping tensors": {"a": entry_of([4], 0, 16), "b": entry_of([2], 8, 16)},
    "the same bytes twice": {"a": entry_of([4], 0, 16), "b": entry_of([4], 0, 16)},
    "a gap": {"a": entry_of([1], 0, 4), "b": entry_of([1], 12, 16)},
    "bytes of nobody at the end": {"a": entry_of([2], 0, 8)},
    "no tensor but data": {},
    "unknown type": {"a": entry_of([4], 0, 16, "F31")},
    "a type of many lines": {"a": entry_of([4], 0, 16, "F\n32")},
    "a name of many lines": {"a\nb\x1b[31m": entry_of([400], 0, 16)},
    "a type that is a list": {"a": entry_of([4], 0, 16, ["F32"])},
    "a fractional side": {"a": entry_of([4.0], 0, 16)},
    "a true side": {"a": entry_of([True, 4], 0, 16)},
    "a shape that is text": {"a": entry_of("4", 0, 16)},
    "a shape that is null": {"a": entry_of(None, 0, 16)},
    "three offsets": {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8, 16]}},
    "no offsets": {"a": {"dtype": "F32", "shape": [4]}},
    "a tensor that is a number": {"a": 4},
    "metadata that is null": {"a": entry_of([4], 0, 16), "__metadata__": None},
    "metadata of exhume that is a number": {"a": entry_of([4], 0, 16), "__metadata__": {"exhume": 3}},
    "metadata of exhume that is no JSON": {"a": entry_of([4], 0, 16), "__metadata__": {"exhume": "{"}},
    "metadata of exhume that is a list": {"a": entry_of([4], 0, 16), "__metadata__": {"exhume": "[]"}},
    "nested metadata of exhume": {"a": entry_of([4], 0, 16), "__metadata__": {"exhume": "[" * 200_000}},
    "a list": [1, 2],
    "a number": 7,
    "null": None,
}


@pytest.mark.parametrize("fields", HOSTILE_FIELDS.values(), ids=HOSTILE_FIELDS.keys())
def test_a_lying_header_is_one_line(tmp_path: Path, fields: object) -> None:
    write_raw(tmp_path / "a", json.dumps(fields).encode(), b"\0" * 16)
    refusal(tmp_path / "a")


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (b"not json", None),
        (b"\xff\xfe\xff", None),
        (b"[" * 500_000, None),
        (b'{"a":' * 200_000, None),
        (b'{"a": {"dtype": "F32", "shape": [' + b"9" * 10_000 + b'], "data_offsets": [0, 16]}}', None),
        (b"{}", 2**64 - 1),
        (b"{}", 2**63),
        (b"{}", 10**10),
        (b"{}", 101 * 2**20),
        (b"{}", 0),
    ],
)
def test_a_header_that_is_no_json_or_of_an_absurd_length_is_one_line(
    tmp_path: Path, header: bytes, length: int | None
) -> None:
    write_raw(tmp_path / "a", header, b"\0" * 16, length)
    refusal(tmp_path / "a")


def test_the_honest_twin_of_the_hostile_headers_is_read(tmp_path: Path) -> None:
    write_raw(tmp_path / "a", json.dumps({"a": entry_of([4], 0, 16)}).encode(), b"\0" * 16)
    assert read_header(tmp_path / "a").entries["a"].shape == (4,)


def test_every_truncation_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_file({"a": torch.ones(3), "b": torch.ones(2)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_missing_file_or_a_folder_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "missing")
    assert "directory" in refusal(tmp_path)
