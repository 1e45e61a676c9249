"""ONNX with the `onnx` package, as data: the graph is read and never run, and no other file is opened."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError
from exhume.formats.contents import Contents, StoredArray, StoredObject
from exhume.formats.extras import require

LARGEST_ONNX = 2 * 2**30
"""The format ends there: protobuf has no larger messages."""
DEEPEST = 32
MOST_ARRAYS = 1_000_000


def read_onnx(path: Path) -> Contents:
    """Initialisers and constants as arrays, those of branches and local functions too; each node an object of kind
    `onnx.<op>` with its attributes, `inputs` and `outputs`."""
    onnx = require("onnx", "onnx", path)
    if path.stat().st_size >= LARGEST_ONNX:
        raise ExhumeError(f"expected less than 2 GB of ONNX at {path}, found more, which the format cannot hold")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as problem:  # protobuf's own errors, by several names
        found = " ".join(str(problem).split())[:120] or type(problem).__name__
        raise ExhumeError(f"expected a whole ONNX model at {path}, found: {found}") from problem
    if not model.graph.node and not model.graph.initializer:
        raise ExhumeError(f"expected an ONNX model at {path}, found a file without a graph")
    arrays: dict[str, StoredArray] = {}
    _keep(_initialisers(onnx, model.graph, path), arrays, "graph", path)
    objects = list(_nodes(onnx, model.graph, path, 0, arrays))
    for function in model.functions:
        objects += _nodes(onnx, function, path, 1, arrays)
    values = {
        "inputs": [_printable(value.name, path) for value in model.graph.input],
        "outputs": [_printable(value.name, path) for value in model.graph.output],
    }
    return Contents("ONNX", arrays, tuple(objects), values)


def _keep(found: Iterable[tuple[str, StoredArray]], arrays: dict[str, StoredArray], where: str, path: Path) -> None:
    """Under their names; a name that another graph has taken gets its place in front."""
    for name, array in found:
        if len(arrays) >= MOST_ARRAYS:
            raise ExhumeError(f"expected at most {MOST_ARRAYS:,} arrays in {path}, found more")
        arrays[name if name not in arrays else f"{where}/{name}"] = array


def _initialisers(onnx: Any, graph: Any, path: Path) -> Iterator[tuple[str, StoredArray]]:
    for tensor in graph.initializer:
        name = _printable(tensor.name, path)
        yield name, _tensor(onnx, tensor, name, path)
    if len(graph.sparse_initializer):
        raise ExhumeError(f"expected dense weights in {path}, found sparse ones, which are not read; export it dense")


def _tensor(onnx: Any, tensor: Any, name: str, path: Path) -> StoredArray:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.external_data):
        raise ExhumeError(
            f"expected the weights in {path} itself, found {name!r} in another file, which was not opened; "
            "where you trust it: onnx.save(onnx.load(path), new, save_as_external_data=False)"
        )
    if any(length < 0 for length in tensor.dims) or len(tensor.dims) > 64:
        raise ExhumeError(f"expected the shape of {name!r} in {path}, found {list(tensor.dims)[:8]}")
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, TypeError, ValueError) as problem:
        raise ExhumeError(f"expected a known type of {name!r} in {path}, found number {tensor.data_type}") from problem
    _check_size(tensor, name, path)
    return StoredArray(name, tuple(tensor.dims), str(dtype), _reader(onnx, tensor, name, path))


def _check_size(tensor: Any, name: str, path: Path) -> None:
    """Numbers that are claimed lie in the file: half a byte each at least, in one field or another."""
    claimed = 1
    for length in tensor.dims:
        claimed *= length
    held = 2 * len(tensor.raw_data) + sum(
        len(values)
        for values in (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    )
    if claimed > 2 * held + len(tensor.string_data):
        raise ExhumeError(
            f"expected {claimed:,} numbers of {name!r} in {path}, found fewer: it claims more than it holds"
        )


def _reader(onnx: Any, tensor: Any, name: str, path: Path) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        try:
            return np.asarray(onnx.numpy_helper.to_array(tensor))
        except Exception as problem:
            found = " ".join(str(problem).split())[:120]
            raise ExhumeError(f"expected the numbers of {name!r} in {path}, found: {found}") from problem

    return read


def _nodes(onnx: Any, graph: Any, path: Path, depth: int, arrays: dict[str, StoredArray]) -> Iterator[StoredObject]:
    """Those of a graph or of a local function. What they hold goes into `arrays`."""
    if depth > DEEPEST:
        raise ExhumeError(f"expected at most {DEEPEST} graphs inside each other in {path}, found more")
    for number, node in enumerate(graph.node):
        members: dict[str, Any] = {
            "inputs": [_printable(name, path) for name in node.input],
            "outputs": [_printable(name, path) for name in node.output],
        }
        where = _printable(node.name or f"{node.op_type}_{number}", path)
        for attribute in node.attribute:
            members[_printable(attribute.name, path)] = _attribute(onnx, attribute, where, path)
            inner = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for graph_inside in inner:
                _keep(_initialisers(onnx, graph_inside, path), arrays, where, path)
                yield from _nodes(onnx, graph_inside, path, depth + 1, arrays)
        constant = members.get("value", members.get("value_floats")) if node.op_type == "Constant" else None
        if isinstance(constant, StoredArray) and members["outputs"]:
            _keep([(members["outputs"][0], constant)], arrays, where, path)
        yield StoredObject(where, f"onnx.{_printable(node.op_type, path)}", members)


def _attribute(onnx: Any, attribute: Any, where: str, path: Path) -> Any:
    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.FLOAT:
            return attribute.f
        case kinds.INT:
            return attribute.i
        case kinds.STRING:
            return attribute.s.decode("utf-8", "replace")
        case kinds.FLOATS:
            return StoredArray.of(attribute.name, np.asarray(attribute.floats, np.float32))
        case kinds.INTS:
            return list(attribute.ints)
        case kinds.STRINGS:
            return [text.decode("utf-8", "replace") for text in attribute.strings]
        case kinds.TENSOR:
            name = _printable(attribute.t.name, path) or f"{where}.{attribute.name}"
            return _tensor(onnx, attribute.t, name, path)
    return None


def _printable(name: str | bytes, path: Path) -> str:
    """protobuf hands out bytes where a text is no UTF-8."""
    if isinstance(name, bytes) or not name.isprintable():
        raise ExhumeError(f"expected names that can be printed in {path}, found {name[:80]!r}")
    return name
