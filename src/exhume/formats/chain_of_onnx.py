"""The dense layers of an ONNX graph, followed from its input: Gemm, or MatMul with Add, and what lies between them."""

from pathlib import Path

import numpy as np

from exhume.errors import UsageError
from exhume.formats.contents import Contents, StoredArray, StoredObject
from exhume.formats.dense_chain import WAY_OUT, DenseChain, DenseLayer, one_activation
from exhume.formats.elementwise import ACTIVATIONS, activation_behind
from exhume.formats.linear_head import Scaler, scaler_of_onnx

PASSED = ("Identity", "Cast", "Flatten", "Dropout")
DENSE = ("Gemm", "MatMul")


def chain_of_onnx(contents: Contents, path: Path) -> DenseChain:
    nodes = contents.objects
    inputs = [name for name in contents.values["inputs"] if name not in contents.arrays]
    if len(inputs) != 1:
        raise UsageError(f"expected a network of one input in {path}, found {len(inputs)}; {WAY_OUT}")
    layers: list[DenseLayer] = []
    between: list[str] = []
    scaler: StoredObject | None = None
    current, waiting = inputs[0], None  # an activation counts once a layer follows
    seen = set[str]()
    while True:
        if current in seen:
            raise UsageError(f"expected a network in {path}, found a loop through {current[:80]!r}; {WAY_OUT}")
        seen.add(current)
        users = [node for node in nodes if current in node.members["inputs"]]
        behind = activation_behind(current, contents) if layers and waiting is None else None
        if behind is not None and not _is_bias(users[0], layers[-1], contents):
            waiting, ending = behind
            if waiting is None and any(ending in node.members["inputs"] for node in nodes):
                kinds = " ".join(dict.fromkeys(node.class_name for node in users))
                raise UsageError(
                    f"expected an activation out of {', '.join(ACTIVATIONS)} in {path}, found another one "
                    f"({kinds} ...); {WAY_OUT}"
                )
            current = ending
            continue
        if len(users) != 1:
            break
        node = users[0]
        kind = node.class_name
        if kind in DENSE and _weights(node, current, contents) is not None:
            if waiting is not None:
                between.append(waiting)
            elif layers:
                between.append("linear")
            layers.append(_layer(node, current, contents, len(layers) + 1))
            waiting = None
        elif layers and waiting is None and (bias := _is_bias(node, layers[-1], contents)) is not None:
            layers[-1] = DenseLayer(layers[-1].name, layers[-1].weight, np.asarray(bias.read()).ravel())
        elif kind == "Scaler" and not layers and scaler is None:
            scaler = node
        elif kind not in PASSED:
            break
        outputs = node.members["outputs"]
        if len(outputs) < 1 or outputs[0] == current:
            break
        current = outputs[0]
    every = [node for node in nodes if node.class_name in (*DENSE, "Conv", "LSTM", "GRU", "RNN", "Attention")]
    if len(layers) != len(every):
        odd = next((node.class_name for node in nodes if current in node.members["inputs"]), "nothing")
        raise UsageError(
            f"expected one chain of dense layers in {path}, found {len(layers)} of {len(every)} layers up to {odd!r}; "
            f"{WAY_OUT}"
        )
    own = None
    if scaler is not None and layers:
        own = Scaler.of(scaler_of_onnx(scaler, path), layers[0].weight.shape[1], path)
    return DenseChain(tuple(layers), one_activation(between, path), (), scaler=own)


def _is_bias(node: StoredObject, layer: DenseLayer, contents: Contents) -> StoredArray | None:
    """The numbers that a node adds to the outputs of a layer without a bias."""
    if node.class_name != "Add" or layer.bias is not None:
        return None
    added = next((contents.arrays[name] for name in node.members["inputs"] if name in contents.arrays), None)
    return added if added is not None and added.numbers == layer.weight.shape[0] else None


def _weights(node: StoredObject, current: str, contents: Contents) -> str | None:
    """The name of the matrix that the current value is multiplied with from the right."""
    inputs = node.members["inputs"]
    return inputs[1] if len(inputs) >= 2 and inputs[0] == current and inputs[1] in contents.arrays else None


def _layer(node: StoredObject, current: str, contents: Contents, number: int) -> DenseLayer:
    name = _weights(node, current, contents)
    assert name is not None
    weight = np.asarray(contents.arrays[name].read())
    if node.class_name == "MatMul":
        return DenseLayer(f"dense{number}", weight.T, None)
    scales = (node.members.get("alpha", 1.0), node.members.get("beta", 1.0), node.members.get("transA", 0))
    if scales != (1.0, 1.0, 0):
        raise UsageError(f"expected plain dense layers, found a Gemm ({node.where!r}) with factors; {WAY_OUT}")
    inputs = node.members["inputs"]
    bias = contents.arrays.get(inputs[2]) if len(inputs) > 2 else None
    weight = weight if node.members.get("transB", 0) else weight.T
    return DenseLayer(f"dense{number}", weight, None if bias is None else np.asarray(bias.read()).ravel())
