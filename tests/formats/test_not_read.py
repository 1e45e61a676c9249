"""Formats of other tools: a scan lists them as not read, an audit refuses them, each with the way to another format."""

from pathlib import Path

import pytest

from exhume.auditing.weights_folder import tensors_in
from exhume.auditing.without_code import read_network
from exhume.errors import ExhumeError
from exhume.scanning.scan import scan

KNOWN = [
    ("m.gguf", b"GGUF\x03\0\0\0", 'gguf_file="m.gguf"'),
    ("m.bin", b"GGUF\x03\0\0\0", 'gguf_file="m.bin"'),
    ("m.tflite", b"\x1c\0\0\0TFL3", '--tflite "m.tflite"'),
    ("saved_model.pb", b"\x08\x01", "--saved-model ."),
    ("frozen.pb", b"\x0a\x01", '--graphdef "frozen.pb"'),
    ("variables.data-00000-of-00001", b"\0\0", "tf.train.load_checkpoint"),
    ("flax_model.msgpack", b"\x81\xa6", "safetensors.flax.save_file"),
    ("m.mlmodel", b"\x08\x04", "made from"),
    ("m.pmml", b"<?xml version", 'skops.io.dump(MODEL, "m.skops")'),
    ("m.rds", b"\x1f\x8b\x08", "safe_save_file"),
    ("m.json", b'{"learner":{"attributes":{}}}', "convert_xgboost"),
    ("m.json", b'{\n  "learner": {}}', "convert_xgboost"),
    ("m.ubj", b"{L\0", "convert_xgboost"),
    ("m.txt", b"tree\nversion=v4\n", "convert_lightgbm"),
    ("m.cbm", b"CBM1", 'format="onnx"'),
]


@pytest.mark.parametrize(("name", "content", "line"), KNOWN)
def test_a_scan_lists_it_as_not_read_with_the_way_out(tmp_path: Path, name: str, content: bytes, line: str) -> None:
    (tmp_path / name).write_bytes(content)
    done = scan(tmp_path)
    assert done.answer.value == "unknown"
    assert [item.name for item in done.unread] == [name]
    assert line in done.unread[0].reason
    assert "\n" not in done.unread[0].reason


@pytest.mark.parametrize("read", [tensors_in, read_network], ids=lambda read: read.__name__)
@pytest.mark.parametrize(("name", "content", "line"), KNOWN)
def test_an_audit_refuses_it_with_the_same_line(
    tmp_path: Path, name: str, content: bytes, line: str, read: object
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ExhumeError) as refused:
        read(tmp_path / name)  # type: ignore[operator]
    assert line in str(refused.value)
    assert "state_dict" not in str(refused.value)


@pytest.mark.parametrize("name", ["notes.txt", "settings.json", "table.xml"])
def test_files_of_no_such_format_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'{"a": 1}')
    assert scan(tmp_path).answer.value == "no"
