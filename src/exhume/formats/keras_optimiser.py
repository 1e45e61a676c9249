"""What the optimiser of a Keras model keeps of its dense layers: averages of gradients, and of the weights themselves.

Keras 3 numbers the variables: the iteration, the learning rate, with `use_ema` the moving average of each kernel and
bias, and then one for each of them (SGD's momentum) or two (Adam's momentum and velocity). In `.h5` they go by names.
SGD's is torch's momentum buffer times minus the learning rate: the same span. Averages of squares have no negative
number, and are left out. This also tells two variables of Adam's from an average beside a momentum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from exhume.formats.contents import Contents, StoredArray
from exhume.formats.dense_chain import Buffers, DenseLayer, LayerValues

NUMBERED = "optimizer/vars/"
FIRST = 2
STORED = "optimizer_weights/"
ENDINGS = {"_momentum": "_", "/m:0": "/", "/momentum:0": "/"}
"""Of a name, and what stands between the layer and its kernel there."""
AVERAGES = {"_average": "_"}
SQUARES = ("_velocity", "/v:0")


@dataclass(frozen=True, eq=False, repr=False)
class KerasOptimiser:
    """`buffers` by torch's names; `average` of the weights, None where there is none."""

    buffers: Buffers = field(default_factory=dict)
    average: LayerValues | None = None


def keras_optimiser(contents: Contents, layers: Sequence[DenseLayer], names: Sequence[str]) -> KerasOptimiser:
    """Nothing where the file has none, or not one for each kernel and bias."""
    found = _numbered(contents, layers)
    return found if found.buffers or found.average is not None or not names else _named(contents, layers, names)


def _numbered(contents: Contents, layers: Sequence[DenseLayer]) -> KerasOptimiser:
    numbers = [name.removeprefix(NUMBERED) for name in contents.arrays if name.startswith(NUMBERED)]
    last = sorted(int(number) for number in numbers if number.isdecimal() and int(number) >= FIRST)
    kept = [contents.arrays[f"{NUMBERED}{number}"] for number in last]
    parts = sum(1 if layer.bias is None else 2 for layer in layers)
    if len(kept) not in (parts, 2 * parts, 3 * parts):
        return KerasOptimiser()
    pairs = kept[-2 * parts :]
    if len(kept) >= 2 * parts and not any((np.asarray(square.read()) < 0).any() for square in pairs[1::2]):
        gradients, name = _values(pairs[::2], layers), "exp_avg"
    else:
        gradients, name = _values(kept[-parts:], layers), "momentum_buffer"
    average = _values(kept[:parts], layers) if len(kept) == (3 if name == "exp_avg" else 2) * parts else None
    return KerasOptimiser({} if gradients is None or not _signed(gradients) else {name: gradients}, average)


def _named(contents: Contents, layers: Sequence[DenseLayer], names: Sequence[str]) -> KerasOptimiser:
    gradients, average = (_ending(contents, layers, names, ends) for ends in (ENDINGS, AVERAGES))
    squares = any(name.startswith(STORED) and name.endswith(SQUARES) for name in contents.arrays)
    name = "exp_avg" if squares else "momentum_buffer"
    return KerasOptimiser({} if gradients is None or not _signed(gradients) else {name: gradients}, average)


def _ending(
    contents: Contents, layers: Sequence[DenseLayer], names: Sequence[str], endings: dict[str, str]
) -> LayerValues | None:
    kept: list[StoredArray] = []
    for layer, own in zip(layers, names, strict=True):
        for part in ("kernel", "bias") if layer.bias is not None else ("kernel",):
            ends = tuple(f"{own}{between}{part}{ending}" for ending, between in endings.items())
            fitting = [name for name in contents.arrays if name.startswith(STORED) and name.endswith(ends)]
            if len(fitting) != 1:
                return None
            kept.append(contents.arrays[fitting[0]])
    return _values(kept, layers)


def _values(kept: Sequence[StoredArray], layers: Sequence[DenseLayer]) -> LayerValues | None:
    """By layers, as torch has them; None where shapes are not those of the layers."""
    parts = [part for layer in layers for part in (layer.weight.T, layer.bias) if part is not None]
    if any(own.shape != part.shape for own, part in zip(kept, parts, strict=True)):
        return None
    left = iter([np.asarray(own.read()) for own in kept])
    return [(next(left).T, None if layer.bias is None else next(left)) for layer in layers]


def _signed(values: LayerValues) -> bool:
    return any((part < 0).any() for pair in values for part in pair if part is not None)
