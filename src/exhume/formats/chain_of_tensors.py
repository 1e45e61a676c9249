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
    likely = tuple(layers) if in_order_of_the_file else tuple(sorted(layers, key=natural))
    found = list(islice(_orders(layers), 2))
    if not found:
        some = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in list(layers.items())[:4])
        raise UsageError(f"expected dense layers that read each other in {path}, found {some}; {WAY_OUT}")
    if len(found) == 1:
        return Order(found[0], True)
    if not _chains([layers[name] for name in likely]):
        raise UsageError(
            f"expected names that tell the order of the layers in {path}, found several orders that fit: "
            f"{' '.join(found[0][:6])} or {' '.join(found[1][:6])}; {WAY_OUT}"
        )
    return Order(likely, False)


def natural(name: str) -> list[tuple[int, int, str]]:
    """Numbers in names count as numbers.

    >>> sorted(["net.10", "net.2"], key=natural)
    ['net.2', 'net.10']
    """
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


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


def _orders(layers: Mapping[str, Shape]) -> Iterator[tuple[str, ...]]:
    """Every order in which each layer reads what the one before it gives, found from the first layer on."""
    names = list(layers)[::-1]
    waiting: list[tuple[str, ...]] = [(name,) for name in names]
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
        waiting.extend((*order, name) for name in names if name not in order and layers[name][1] == width)


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
