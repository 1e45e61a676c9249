"""Files that lie, loop, point elsewhere, carry code or grow: each is refused in one line, and nothing of it is run."""

import io
import json
import os
import pickle
import struct
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.numpy import save_file

from exhume.auditing.records import TableOptions, read_records
from exhume.auditing.without_code import read_network
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.head_file import read_head_file
from exhume.formats.adapter import read_adapter
from exhume.formats.chain_of_onnx import chain_of_onnx
from exhume.formats.onnx_file import DEEPEST
from exhume.formats.reading import kind_of, read_contents
from published_files import fitted, iris, save_keras, save_skops, some_layers

Make = Callable[[Path], Path]


class Bomb:
    """Leaves a mark if anybody unpickles it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


def zipped(path: Path, entries: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def npy(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def schema(content: object) -> bytes:
    root = {"__class__": "SVC", "__module__": "sklearn.svm", "__loader__": "ObjectNode", "content": content}
    return json.dumps(root).encode()


def array_node(file: str) -> dict[str, object]:
    return {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": file}


def dict_node(**content: object) -> dict[str, object]:
    return {"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode", "content": content}


# safetensors and shards


def shards(folder: Path, name: str, tensor: str = "a") -> Path:
    save_file({"a": np.zeros(3, np.float32)}, folder / "one.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {tensor: name}}))
    return index


def shards_by_a_link(folder: Path) -> Path:
    (folder / "inside").mkdir()
    index = shards(folder / "inside", "one.safetensors")
    (folder / "inside" / "one.safetensors").rename(folder / "outside.safetensors")
    (folder / "inside" / "one.safetensors").symlink_to(folder / "outside.safetensors")
    return index


def long_header(folder: Path) -> Path:
    (folder / "a.safetensors").write_bytes(struct.pack("<Q", 2**40) + b'{"a":1}')
    return folder / "a.safetensors"


# NumPy


def npy_that_claims_more(folder: Path) -> Path:
    content = npy(np.zeros((3, 4))).replace(b"(3, 4)", b"(9, 4)")
    (folder / "a.npy").write_bytes(content)
    return folder / "a.npy"


def npy_of_objects(folder: Path) -> Path:
    (folder / "a.npy").write_bytes(npy(np.array([Bomb(folder / "mark")], dtype=object)))
    return folder / "a.npy"


def npz_of_objects(folder: Path) -> Path:
    return zipped(folder / "a.npz", {"a.npy": npy(np.array([Bomb(folder / "mark")], dtype=object))})


def npz_bomb(folder: Path) -> Path:
    path = zipped(folder / "a.npz", {"a.npy": npy(np.zeros(10**6))}, zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 2**31)  # the size that the list claims
    path.write_bytes(content)
    return path


def archive_that_leads_out(folder: Path) -> Path:
    return zipped(folder / "a.npz", {"../../a.npy": npy(np.zeros(3))})


def archive_of_one_name_twice(folder: Path) -> Path:
    path = zipped(folder / "a.npz", {"a.npy": npy(np.zeros(3)), "b.npy": npy(np.zeros(4))})
    path.write_bytes(path.read_bytes().replace(b"b.npy", b"a.npy"))
    return path


# HDF5 and Keras


def hdf5(folder: Path, fill: Callable[[h5py.File], None]) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        fill(file)
    return folder / "a.h5"


def external_link(folder: Path) -> Path:
    return hdf5(folder, lambda file: file.__setitem__("a", h5py.ExternalLink("/etc/passwd", "/")))


def soft_link(folder: Path) -> Path:
    return hdf5(folder, lambda file: file.__setitem__("a", h5py.SoftLink("/a")))


def loop(folder: Path) -> Path:
    def fill(file: h5py.File) -> None:
        file.create_group("a")["again"] = file["/"]

    return hdf5(folder, fill)


def outside_data(folder: Path) -> Path:
    def fill(file: h5py.File) -> None:
        file.create_dataset("a", (4,), "f4", external=[("/etc/hostname", 0, 16)])

    return hdf5(folder, fill)


def a_view(folder: Path) -> Path:
    def fill(file: h5py.File) -> None:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource("/etc/hostname", "a", (4,))
        file.create_virtual_dataset("a", layout)

    return hdf5(folder, fill)


def never_written(folder: Path) -> Path:
    return hdf5(folder, lambda file: file.create_dataset("a", (10**6, 10**6), "f4", chunks=(100, 100)) and None)


def packed_zeros(folder: Path) -> Path:
    return hdf5(folder, lambda file: file.create_dataset("a", data=np.zeros(10**6), compression="gzip") and None)


def keras_with_code(folder: Path) -> Path:
    path = save_keras(some_layers(), folder / "a.keras")
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["config.json"] = b"[1, 2]"
    return zipped(folder / "a.keras", entries)


# skops


def skops_that_leads_out(folder: Path) -> Path:
    return zipped(folder / "a.skops", {"schema.json": schema(dict_node(a=array_node("/etc/passwd")))})


def skops_of_objects(folder: Path) -> Path:
    content = npy(np.array([Bomb(folder / "mark")], dtype=object))
    return zipped(folder / "a.skops", {"schema.json": schema(dict_node(a=array_node("a.npy"))), "a.npy": content})


def skops_loop(folder: Path) -> Path:
    again = {"__class__": "SVC", "__module__": "sklearn.svm", "__loader__": "CachedNode", "__id__": 7}
    return zipped(folder / "a.skops", {"schema.json": schema(dict_node(a=again))})


def skops_deep(folder: Path) -> Path:
    node: dict[str, object] = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": "1"}
    for _ in range(300):
        node = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": [node]}
    return zipped(folder / "a.skops", {"schema.json": schema(dict_node(a=node))})


# ONNX


def model_of(initialisers: list[TensorProto]) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph([], "g", [], [], initializer=initialisers))


def onnx_outside(folder: Path) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../../../etc/passwd"
    (folder / "a.onnx").write_bytes(model_of([tensor]).SerializeToString())
    return folder / "a.onnx"


def onnx_that_claims_more(folder: Path) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[10**6, 10**6], raw_data=bytes(12))
    (folder / "a.onnx").write_bytes(model_of([tensor]).SerializeToString())
    return folder / "a.onnx"


def onnx_cut(folder: Path) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=bytes(12))
    (folder / "a.onnx").write_bytes(model_of([tensor]).SerializeToString()[:-5])
    return folder / "a.onnx"


def graph_in(graph: onnx.GraphProto) -> onnx.GraphProto:
    """A graph whose only node holds another one."""
    other = helper.make_graph([], "e", [], [])
    node = helper.make_node("If", ["c"], ["o"], then_branch=graph, else_branch=other)
    return helper.make_graph([node], "g", [], [])


def onnx_deep(folder: Path) -> Path:
    graph = helper.make_graph([], "g", [], [], initializer=[])
    for _ in range(DEEPEST + 1):
        graph = graph_in(graph)
    (folder / "a.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    return folder / "a.onnx"


def onnx_deeper_than_protobuf(folder: Path) -> Path:
    """Three messages a level; written by hand, because protobuf does not."""

    def field(number: int, content: bytes) -> bytes:
        length, size = b"", len(content)
        while size > 127:
            length, size = length + bytes([size % 128 + 128]), size // 128
        return bytes([number * 8 + 2]) + length + bytes([size]) + content

    graph = b""
    for _ in range(5_000):
        graph = field(1, field(5, field(6, graph)))
    (folder / "a.onnx").write_bytes(field(7, graph))
    return folder / "a.onnx"


def onnx_function_deep(folder: Path) -> Path:
    graph = helper.make_graph([], "g", [], [])
    for _ in range(DEEPEST):
        graph = graph_in(graph)
    node = helper.make_node("If", ["c"], ["o"], then_branch=graph, else_branch=graph)
    function = helper.make_function("own", "F", ["c"], ["o"], [node], [helper.make_opsetid("", 17)])
    call = helper.make_node("F", ["c"], ["o"], domain="own")
    model = helper.make_model(helper.make_graph([call], "g", [], []), functions=[function])
    (folder / "a.onnx").write_bytes(model.SerializeToString())
    return folder / "a.onnx"


def onnx_constant_outside(folder: Path) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    graph = helper.make_graph([helper.make_node("Constant", [], ["k"], value=tensor)], "g", [], [])
    (folder / "a.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    return folder / "a.onnx"


# archives that grow


def keras_config_bomb(folder: Path) -> Path:
    content = {"config.json": b"[" + b" " * (80 * 2**20) + b"]", "metadata.json": b"{}", "model.weights.h5": b""}
    return zipped(folder / "a.keras", content, zipfile.ZIP_DEFLATED)


def keras_weights_bomb(folder: Path) -> Path:
    """HDF5 may lie behind anything; these zeros are no HDF5."""
    config = json.dumps({"class_name": "Sequential", "config": {"layers": []}}).encode()
    content = {"config.json": config, "model.weights.h5": bytes(80 * 2**20)}
    return zipped(folder / "a.keras", content, zipfile.ZIP_DEFLATED)


def keras_config_deep(folder: Path) -> Path:
    content = {"config.json": b"[" * 200_000 + b"]" * 200_000, "model.weights.h5": b""}
    return zipped(folder / "a.keras", content, zipfile.ZIP_DEFLATED)


def skops_schema_bomb(folder: Path) -> Path:
    return zipped(folder / "a.skops", {"schema.json": b" " * (260 * 2**20)}, zipfile.ZIP_DEFLATED)


def skops_array_bomb(folder: Path) -> Path:
    """A header of four numbers in front of zeros without end."""
    content = {"schema.json": schema(dict_node(x=array_node("a.npy"))), "a.npy": npy(np.zeros(4)) + bytes(80 * 2**20)}
    return zipped(folder / "a.skops", content, zipfile.ZIP_DEFLATED)


# pickles


def a_pickle(folder: Path) -> Path:
    (folder / "a.pkl").write_bytes(pickle.dumps(Bomb(folder / "mark")))
    return folder / "a.pkl"


def a_joblib(folder: Path) -> Path:
    import joblib
    from sklearn.neighbors import KNeighborsClassifier

    joblib.dump(fitted(KNeighborsClassifier(3)), folder / "a.joblib")
    return folder / "a.joblib"


def a_checkpoint_with_code(folder: Path) -> Path:
    torch.save({"model": {"w": torch.zeros(3)}, "args": Bomb(folder / "mark")}, folder / "a.pt")
    return folder / "a.pt"


def a_checkpoint_that_contains_itself(folder: Path) -> Path:
    inside: dict[str, object] = {}
    inside["again"] = inside
    torch.save(inside, folder / "a.pt")
    return folder / "a.pt"


def read_everything(path: Path) -> None:
    for array in read_contents(path).arrays.values():
        array.read()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (long_header, "a header of"),
        (lambda folder: shards(folder, "../one.safetensors"), "which leads elsewhere"),
        (lambda folder: shards(folder, "/etc/passwd"), "which leads elsewhere"),
        (lambda folder: shards(folder, "one.safetensors", "b"), "found no such tensor"),
        (lambda folder: shards(folder, "two.safetensors"), "No such file"),
        (shards_by_a_link, "a link that leads out of the folder"),
        (npy_that_claims_more, "expected 288 bytes"),
        (npy_of_objects, "which are a pickle, and it was not run"),
        (npz_of_objects, "which are a pickle, and it was not run"),
        (npz_bomb, "packed into"),
        (archive_that_leads_out, "whose name leads elsewhere"),
        (archive_of_one_name_twice, "two entries of one name"),
        (external_link, "a link to another place"),
        (soft_link, "a link to another place"),
        (loop, "a loop"),
        (outside_data, "which lies in other files"),
        (a_view, "which lies in other files"),
        (never_written, "stored in full"),
        (packed_zeros, "stored in full"),
        (keras_with_code, "expected a JSON object"),
        (skops_that_leads_out, "found no such entry"),
        (skops_of_objects, "which are a pickle, and it was not run"),
        (skops_loop, "a loop"),
        (skops_deep, "levels"),
        (onnx_outside, "in another file, which was not opened"),
        (onnx_that_claims_more, "claims more than it holds"),
        (onnx_cut, "a whole ONNX model"),
        (onnx_deep, "graphs inside each other"),
        (onnx_deeper_than_protobuf, "a whole ONNX model"),
        (onnx_function_deep, "graphs inside each other"),
        (onnx_constant_outside, "in another file, which was not opened"),
        (keras_config_bomb, "at most 67,108,864 bytes of 'config.json'"),
        (keras_weights_bomb, "a whole HDF5 file"),
        (keras_config_deep, "expected JSON"),
        (skops_schema_bomb, "at most 268,435,456 bytes of 'schema.json'"),
        (skops_array_bomb, "expected"),
        (a_pickle, "a pickle, and it was not run; where you trust it: skops.io.dump"),
        (a_joblib, r'skops.io.dump\(joblib.load\("a.joblib"\), "a.skops"\)'),
        (a_checkpoint_with_code, "that is code, and it was not run"),
        (a_checkpoint_that_contains_itself, "goes on and on"),
    ],
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, make: Make, words: str) -> None:
    path = make(tmp_path)
    with pytest.raises(ExhumeError, match=words) as refused:
        read_everything(path)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".npy", ".npz", ".h5", ".keras", ".onnx", ".skops", ".pkl", ".pt"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"\x89HDF\r\n\x1a\n", b"\x93NUMPY", b"\x80\x04."])
def test_a_file_of_another_kind_under_any_name_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    with pytest.raises(ExhumeError):
        read_contents(path)


def test_a_whole_file_of_each_kind_is_known_by_its_content(tmp_path: Path) -> None:
    """The twin of the refusals: what is whole is read, whatever its name says."""
    from sklearn.svm import SVC

    x, _ = iris()
    save_skops(fitted(SVC()), tmp_path / "a.skops").rename(tmp_path / "skops.zip")
    save_keras(some_layers(), tmp_path / "a.keras").rename(tmp_path / "keras.zip")
    np.savez_compressed(tmp_path / "npz.npz", x=x)
    np.save(tmp_path / "npy.npy", np.asfortranarray(x))
    torch.save({"a": torch.ones(2)}, tmp_path / "torch.bin")
    found = {path.stem: kind_of(path) for path in tmp_path.iterdir()}
    assert found == {name: name for name in ("skops", "keras", "npz", "npy", "torch")}
    np.testing.assert_array_equal(read_contents(tmp_path / "npz.npz").arrays["x"].read(), x)
    np.testing.assert_array_equal(read_contents(tmp_path / "npy.npy").arrays["npy"].read(), x)


def test_layers_of_onnx_that_go_in_a_circle_are_refused(tmp_path: Path) -> None:
    weight = helper.make_tensor("W", TensorProto.FLOAT, [3, 3], np.eye(3, dtype=np.float32).tobytes(), raw=True)
    nodes = [helper.make_node("Gemm", [one, "W"], [other]) for one, other in (("a", "b"), ("b", "a"))]
    asked = helper.make_tensor_value_info("a", TensorProto.FLOAT, [None, 3])
    graph = helper.make_graph(nodes, "g", [asked], [], initializer=[weight])
    (tmp_path / "a.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(UsageError, match="a loop through 'a'"):
        chain_of_onnx(read_contents(tmp_path / "a.onnx"), tmp_path / "a.onnx")


def the_weights_of_a_folder(folder: Path) -> None:
    save_file({"0.weight": np.ones((4, 3), np.float32), "2.weight": np.ones((2, 4), np.float32)}, folder / "w")
    (folder / "w").rename(folder / "model.safetensors")


def as_columns(path: Path) -> None:
    table = path.with_name("table.csv")
    table.write_text("a,b\n1,2\n3,4\n")
    read_records(table, how=TableOptions(columns=path))


def as_scaling(path: Path) -> None:
    table = path.with_name("table.csv")
    table.write_text("a,b\n1,2\n3,4\n")
    read_records(table, how=TableOptions(scaling=str(path)))


def as_settings(path: Path) -> None:
    """What lies beside the weights is a help: a note says why it was not used."""
    the_weights_of_a_folder(path.parent)
    raise ExhumeError(" ".join(read_network(path.parent).file.beside.notes) or "expected a note, found none")


READERS: list[tuple[str, Callable[[Path], object]]] = [
    *((f"a{suffix}", read_contents) for suffix in (".npy", ".npz", ".h5", ".keras", ".onnx", ".skops", ".pt", ".pkl")),
    ("model.safetensors.index.json", read_contents),
    ("adapter_config.json", lambda path: read_adapter(path.parent)),
    ("a.csv", read_records),
    ("a.parquet", read_records),
    ("rows.npz", read_records),
    ("columns.json", as_columns),
    ("scales.json", as_scaling),
    ("scaler.skops", as_scaling),
    ("training_args.json", as_settings),
    ("head.skops", read_head_file),
]


KINDS = ("a pipe", "a link to nothing", "a link to itself")
SETTINGS = "training_args.json"
"""Of a folder. A link that leads nowhere is no file of it."""


@pytest.mark.parametrize(
    ("name", "read", "kind"),
    [(name, read, kind) for name, read in READERS for kind in KINDS if name != SETTINGS or kind == KINDS[0]],
)
def test_no_reader_waits_for_a_pipe_or_follows_a_link_to_nowhere(
    tmp_path: Path, name: str, read: Callable[[Path], object], kind: str
) -> None:
    path = tmp_path / name
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "a link to itself" else tmp_path / "nothing")
    timer = threading.Timer(10, lambda: os.close(os.open(path, os.O_RDWR)))  # lets whoever waits for a writer go on
    timer.daemon = True
    timer.start()
    began = time.monotonic()
    with pytest.raises(ExhumeError) as refused:
        read(path)
    timer.cancel()
    assert time.monotonic() - began < 9
    assert "\n" not in str(refused.value)
    assert "expected" in str(refused.value) or "not used" in str(refused.value)
