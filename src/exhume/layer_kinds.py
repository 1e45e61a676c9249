"""What each layer of a weights file is, by the names and shapes of its tensors, without code and without torch.

Tensors that share everything before the last dot of their names are one layer. What a shape cannot tell is not said: a
matrix may be a linear layer or a table of embeddings, unless its name says so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

Shape = tuple[int, ...]
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""What batch norm counts and does not train."""


@dataclass(frozen=True)
class StoredLayer:
    """`what` is one phrase; `parameters` counts the numbers of the layer, without running statistics."""

    name: str
    parameters: int
    what: str


def stored_layers(shapes: Mapping[str, Shape], d: int | None = None) -> tuple[StoredLayer, ...]:
    """In the order of the file. `d`: the numbers in one input, which tells the layer that reads inputs.

    >>> [layer.what for layer in stored_layers({"0.weight": (9, 4), "0.bias": (9,), "2.weight": (1, 9)}, d=4)]
    ['linear 4 -> 9, as wide as the inputs', 'linear 9 -> 1, the last in the file']
    """
    layers: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        layer, _, part = name.rpartition(".")
        layers.setdefault(layer or name, {})[part] = shape
    matrices = [name for name, parts in layers.items() if _is_linear(name, parts)]
    found = []
    for name, parts in layers.items():
        what = _what(name, parts)
        if name in matrices and _matrix(parts)[1] == d:
            what += ", as wide as the inputs"
        if matrices and name == matrices[-1]:
            what += ", the last in the file"
        numbers = sum(math.prod(shape) for part, shape in parts.items() if part not in STATISTICS)
        found.append(StoredLayer(name, numbers, what))
    return tuple(found)


def _matrix(parts: Mapping[str, Shape]) -> Shape:
    return next((shape for shape in parts.values() if len(shape) == 2), ())


def _is_linear(name: str, parts: Mapping[str, Shape]) -> bool:
    return len(_matrix(parts)) == 2 and "emb" not in name.lower()


def _what(name: str, parts: Mapping[str, Shape]) -> str:
    if any(part in STATISTICS for part in parts):
        return f"batch norm of {max(math.prod(shape) for shape in parts.values()):,} channels"
    kernel = next((shape for shape in parts.values() if len(shape) in (3, 4, 5)), None)
    if kernel is not None:
        side = " x ".join(map(str, kernel[2:]))
        return f"convolution {kernel[1]:,} -> {kernel[0]:,}, {side}"
    matrix = _matrix(parts)
    if not matrix:
        return "a vector, or a few numbers"
    if not _is_linear(name, parts):
        return f"embeddings, by its name: {matrix[0]:,} rows of {matrix[1]:,}"
    return f"linear {matrix[1]:,} -> {matrix[0]:,}"
