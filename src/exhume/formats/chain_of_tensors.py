"""Which tensors of a state dict are a chain of dense layers, and in which order, by their names and shapes alone."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from exhume.errors import UsageError
from exhume.formats.dense_chain import FEWEST_LAYERS, WAY_OUT

MOST_LAYERS = 64
MOST_TRIED = 10_000
"""Beginnings of an order that are looked at: with many layers of one shape there are more than anybody can try."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """Names of layers from the inputs to the outputs; whether their shapes leave no other order."""

    names: tuple[str, ...]
    only_one: bool


def order_of(shapes: Mapping[str, Shape], path: Path, in_order_of_the_file: bool) -> Order:
    """`in_order_of_the_file`: PyTorch keeps the order in which layers were defined; safetensors sorts by name.

    >>> order_of({"b.weight": (3, 5), "a.weight": (5, 9), "a.bias": (5,)}, Path("a.pt"), True)
    Order(names=('a', 'b'), only_one=True)
    """
    layers = _layers(shapes, path)
    found = list(islice(_orders(layers), 2))
    if not found:
        some = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in list(layers.items())[:4])
        raise UsageError(f"expected dense layers that read each other in {path}, found {some}; {WAY_OUT}")
    if len(found) == 1:
        return Order(found[0], True)
    if in_order_of_the_file and _chains(list(layers.values())):
        return Order(tuple(layers), False)
    numbered = list(islice(_orders(layers, by_number=True), 2))
    if len(numbered) != 1:
        one, other = numbered or found
        raise UsageError(
            f"expected numbers in the names that tell the order of the layers in {path}, found several orders that "
            f"fit: {' '.join(one[:6])} or {' '.join(other[:6])}; {WAY_OUT}"
        )
    return Order(numbered[0], False)


def natural(name: str) -> list[tuple[int, int, str]]:
    """Numbers in names count as numbers.

    >>> sorted(["net.10", "net.2"], key=natural)
    ['net.2', 'net.10']
    """
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _has_smaller_number(one: str, other: str) -> bool:
    """
    >>> _has_smaller_number("b.2.fc", "b.10.out"), _has_smaller_number("dec.0", "enc.1")
    (True, False)
    """
    pairs = zip(natural(one), natural(other), strict=False)
    first, second = next(((a, b) for a, b in pairs if a != b), ((1, 0, ""), (1, 0, "")))
    return first[0] == second[0] == 0 and first < second


def _layers(shapes: Mapping[str, Shape], path: Path) -> dict[str, Shape]:
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    if len(matrices) == 1 and all(name in matrices or name.rpartition(".")[2] == "bias" for name in shapes):
        raise UsageError(
            f"expected {FEWEST_LAYERS} to {MOST_LAYERS} dense layers in {path}, found one; for a single linear layer: "
            f"exhume rank {path.name} --candidates DATA --out DIR; otherwise {WAY_OUT}"
        )
    layers = {name.removesuffix(".weight"): shape for name, shape in shapes.items() if _is_matrix(name, shape)}
    for name, shape in shapes.items():
        layer, _, part = name.rpartition(".")
        own = layers.get(layer)
        if own is None or part not in ("weight", "bias") or (part == "bias" and shape != own[:1]):
            sides = "x".join(map(str, shape)) or "one number"
            raise UsageError(f"expected dense layers and nothing else in {path}, found {name!r} ({sides}); {WAY_OUT}")
    if not FEWEST_LAYERS <= len(layers) <= MOST_LAYERS:
        raise UsageError(
            f"expected {FEWEST_LAYERS} to {MOST_LAYERS} dense layers in {path}, found {len(layers)}; {WAY_OUT}"
        )
    return layers


def _is_matrix(name: str, shape: Shape) -> bool:
    return name.endswith(".weight") and len(shape) == 2 and 0 not in shape


def _chains(shapes: list[Shape]) -> bool:
    return all(after[1] == before[0] for before, after in pairwise(shapes))


def _orders(layers: Mapping[str, Shape], by_number: bool = False) -> Iterator[tuple[str, ...]]:
    """Every order in which each layer reads what the one before it gives, found from the first layer on. `by_number`:
    those in which names that differ in a number first come in the order of these numbers."""
    names = list(layers)[::-1]
    before = {name: {other for other in names if by_number and _has_smaller_number(other, name)} for name in names}
    waiting: list[tuple[str, ...]] = [(name,) for name in names if not before[name]]
    for _ in range(MOST_TRIED):
        if not waiting:
            return
        order = waiting.pop()
        if len(order) == len(layers):
            yield order
            continue
        if _left_apart(order, layers):
            continue
        width = layers[order[-1]][0]
        waiting.extend(
            (*order, name)
            for name in names
            if name not in order and layers[name][1] == width and before[name] <= set(order)
        )


def _left_apart(order: tuple[str, ...], layers: Mapping[str, Shape]) -> bool:
    """Whether more layers are left to read or to give some width than can be joined: no order goes on from here.

    Behind the last layer there is one that reads its width; every other width is given as often as it is read, but for
    the outputs of the very last layer.
    """
    left: dict[int, int] = {}
    for name, (out, into) in layers.items():
        if name not in order:
            left[out] = left.get(out, 0) + 1
            left[into] = left.get(into, 0) - 1
    width = layers[order[-1]][0]
    left[width] = left.get(width, 0) + 1
    return sum(count for count in left.values() if count > 0) > 1
