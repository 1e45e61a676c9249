"""What the optimiser of a Keras model keeps of its dense layers.

Keras 3 numbers the variables: the iteration, the learning rate, and then one (SGD's momentum) or two (Adam's momentum
and velocity) for each kernel and bias. In `.h5` they go by names. SGD's is torch's momentum buffer times minus the
learning rate: the same span. Averages of squares have no negative number, and are left out.
"""

from collections.abc import Sequence

import numpy as np

from exhume.formats.contents import Contents, StoredArray
from exhume.formats.dense_chain import Buffers, DenseLayer

NUMBERED = "optimizer/vars/"
FIRST = 2
ENDINGS = {"_momentum": "_", "/m:0": "/", "/momentum:0": "/"}
"""Of a name, and what stands between the layer and its kernel there."""
BY_COUNT = {1: "momentum_buffer", 2: "exp_avg"}


def keras_buffers(contents: Contents, layers: Sequence[DenseLayer], names: Sequence[str]) -> Buffers:
    """By torch's names; nothing where the file has none, or not one for each kernel and bias."""
    parts = [part for layer in layers for part in (layer.weight.T, layer.bias) if part is not None]
    kept, per_part = _numbered(contents, len(parts))
    if not kept and len(names) == len(layers):
        kept, per_part = _named(contents, layers, names)
    fits = len(kept) == len(parts) and all(own.shape == part.shape for own, part in zip(kept, parts, strict=True))
    values = [np.asarray(own.read()) for own in kept] if fits else []
    if not values or not any((own < 0).any() for own in values):
        return {}
    found, left = [], iter(values)
    for layer in layers:
        found.append((next(left).T, None if layer.bias is None else next(left)))
    return {BY_COUNT[per_part]: found}


def _numbered(contents: Contents, parts: int) -> tuple[list[StoredArray], int]:
    numbers = [name.removeprefix(NUMBERED) for name in contents.arrays if name.startswith(NUMBERED)]
    last = sorted(int(number) for number in numbers if number.isdecimal() and int(number) >= FIRST)
    per_part = len(last) // parts
    if per_part not in BY_COUNT or len(last) != parts * per_part:
        return [], 1
    return [contents.arrays[f"{NUMBERED}{number}"] for number in last[::per_part]], per_part


def _named(contents: Contents, layers: Sequence[DenseLayer], names: Sequence[str]) -> tuple[list[StoredArray], int]:
    kept: list[StoredArray] = []
    stored = [name for name in contents.arrays if name.startswith("optimizer_weights/")]
    for layer, own in zip(layers, names, strict=True):
        for part in ("kernel", "bias") if layer.bias is not None else ("kernel",):
            ends = tuple(f"{own}{between}{part}{ending}" for ending, between in ENDINGS.items())
            fitting = [name for name in stored if name.endswith(ends)]
            if len(fitting) != 1:
                return [], 1
            kept.append(contents.arrays[fitting[0]])
    return kept, 2 if any(name.endswith(("_velocity", "/v:0")) for name in stored) else 1
