"""What lies between two layers of an ONNX graph: one activation, be it one node or several.

Exporters write GELU and SiLU as sums and products. Such nodes are not recognised by their order, which differs from one
exporter to the next: they are worked out on a few numbers, and compared with the activations that are known.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from exhume.formats.contents import Contents, StoredArray, StoredObject

Values = np.ndarray
POINTS = np.concatenate([np.linspace(-9.0, 9.0, 37), [-0.01, 0.01, 12.0]])
AGREES = 1e-5
"""Files keep single precision."""
MOST_NODES = 32


def _erf(z: Values) -> Values:
    return np.array([math.erf(value) for value in z.ravel()]).reshape(z.shape)


def _sigmoid(z: Values) -> Values:
    return np.asarray(0.5 * (1 + np.tanh(z / 2)))


ACTIVATIONS: dict[str, Callable[[Values], Values]] = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "gelu": lambda z: z * (1 + _erf(z / math.sqrt(2))) / 2,
    "sigmoid": _sigmoid,
    "softplus": lambda z: np.logaddexp(z, 0),
    "erf": _erf,
    "silu": lambda z: z * _sigmoid(z),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "relu6": lambda z: np.clip(z, 0, 6),
}
"""exhume's own activations, by their names, without torch."""


def _clip(node: StoredObject, given: Sequence[Values]) -> Values:
    low, high = (given[at] if len(given) > at else node.members.get(name) for at, name in ((1, "min"), (2, "max")))
    return np.clip(given[0], -np.inf if low is None else low, np.inf if high is None else high)


def _gelu(node: StoredObject, given: Sequence[Values]) -> Values:
    z = given[0]
    if node.members.get("approximate", "none") != "tanh":
        return ACTIVATIONS["gelu"](z)
    return np.asarray(z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))) / 2)


def _slope(node: StoredObject, default: float) -> float:
    return float(node.members.get("alpha", default))


NODES: dict[str, Callable[[StoredObject, Sequence[Values]], Values]] = {
    **{
        name: lambda node, given, own=ACTIVATIONS[own]: own(given[0])  # type: ignore[misc]
        for name, own in (
            ("Relu", "relu"),
            ("Tanh", "tanh"),
            ("Sigmoid", "sigmoid"),
            ("Softplus", "softplus"),
            ("Erf", "erf"),
        )
    },
    "Gelu": _gelu,
    "LeakyRelu": lambda node, given: np.where(given[0] > 0, given[0], _slope(node, 0.01) * given[0]),
    "Elu": lambda node, given: np.where(given[0] > 0, given[0], _slope(node, 1.0) * np.expm1(np.minimum(given[0], 0))),
    "Clip": _clip,
    "Add": lambda node, given: given[0] + given[1],
    "Sub": lambda node, given: given[0] - given[1],
    "Mul": lambda node, given: given[0] * given[1],
    "Div": lambda node, given: given[0] / given[1],
    "Pow": lambda node, given: given[0] ** given[1],
    "Neg": lambda node, given: -given[0],
    "Exp": lambda node, given: np.exp(given[0]),
    "Identity": lambda node, given: given[0],
    "Cast": lambda node, given: given[0],
}
CONSTANT = "Constant"


def activation_behind(name: str, contents: Contents) -> tuple[str | None, str] | None:
    """The activation that follows a value, and the value that it gives. Its name is None where none is known that is
    the same; None for no such nodes at all."""
    values: dict[str, Values] = {name: POINTS}
    done: set[int] = set()
    end = None
    while len(done) < MOST_NODES:
        found = next(
            (
                (at, node, given)
                for at, node in enumerate(contents.objects)
                if at not in done
                and node.class_name in NODES
                and set(node.members["inputs"]) & set(values)
                and (given := _given(node, values, contents)) is not None
            ),
            None,
        )
        if found is None:
            break
        at, node, given = found
        done.add(at)
        with np.errstate(all="ignore"):
            try:
                made = np.asarray(NODES[node.class_name](node, given), np.float64)
            except (IndexError, TypeError, ValueError):
                break
        outputs = node.members["outputs"]
        if len(outputs) != 1 or outputs[0] in values or made.shape != POINTS.shape:
            break
        values[outputs[0]] = made
        if _left_to_read(contents, values, done) <= {outputs[0]}:
            end = outputs[0]
    if end is None or np.array_equal(values[end], POINTS):
        return None
    return _named(values[end]), end


def _left_to_read(contents: Contents, values: dict[str, Values], done: set[int]) -> set[str]:
    """Values that nodes which were not worked out read as well."""
    others = [node for at, node in enumerate(contents.objects) if at not in done]
    return {name for node in others for name in node.members["inputs"] if name in values}


def _given(node: StoredObject, values: dict[str, Values], contents: Contents) -> list[Values] | None:
    """What a node reads, if all of it is known: values behind the layer, and single numbers of the file."""
    given = [values[name] if name in values else _number(name, contents) for name in node.members["inputs"] if name]
    return None if any(value is None for value in given) else [value for value in given if value is not None]


def _number(name: str, contents: Contents) -> Values | None:
    array = contents.arrays.get(name)
    if array is None:
        maker = next(
            (node for node in contents.objects if node.class_name == CONSTANT and name in node.members["outputs"]), None
        )
        value = None if maker is None else maker.members.get("value", maker.members.get("value_float"))
        if isinstance(value, float):
            return np.asarray(value)
        array = value if isinstance(value, StoredArray) else None
    if array is None or array.numbers != 1:
        return None
    return np.asarray(array.read(), np.float64).reshape(())


def _named(made: Values) -> str | None:
    fitting = (
        name
        for name, own in ACTIVATIONS.items()
        if np.allclose(made, own(POINTS), rtol=AGREES, atol=AGREES)  # NaN agrees with nothing
    )
    return next(fitting, None)
