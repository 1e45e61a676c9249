"""A network without its code: dense layers one behind the other, as a file tells them.

    x -> W1 x + b1 -> phi -> W2 h + b2 -> phi -> ... -> Wk h + bk

What a file says of phi is taken; PyTorch and safetensors files say nothing of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from exhume.errors import ExhumeError, UsageError
from exhume.formats.linear_head import Scaler

WAY_OUT = "give the network as --model package.module:factory"
FEWEST_LAYERS = 2
LayerValues = Sequence[tuple[np.ndarray, np.ndarray | None]]
"""Of a kernel and of a bias, for each layer in order."""
Buffers = Mapping[str, LayerValues]


@dataclass(frozen=True, eq=False, repr=False)
class DenseLayer:
    """`weight` has one row an output. `name` is the layer's own where the file has one."""

    name: str
    weight: np.ndarray
    bias: np.ndarray | None


@dataclass(frozen=True, eq=False, repr=False)
class DenseChain:
    """`buffers` are what an optimiser keeps of each layer, by torch's names, and `average` the moving average of its
    weights, where the file has them."""

    layers: tuple[DenseLayer, ...]
    activation: str | None
    notes: tuple[str, ...] = ()
    buffers: Buffers = field(default_factory=dict)
    scaler: Scaler | None = None
    """What the file does to a record in front of the network."""
    average: LayerValues | None = None


def checked(chain: DenseChain, path: Path) -> DenseChain:
    """Each layer reads what the one before it gives."""
    if len(chain.layers) < FEWEST_LAYERS:
        raise UsageError(
            f"expected a chain of at least {FEWEST_LAYERS} dense layers in {path}, found {len(chain.layers)}; "
            f"for a single linear layer see exhume rank; otherwise {WAY_OUT}"
        )
    width = None
    for layer in chain.layers:
        if layer.weight.ndim != 2 or 0 in layer.weight.shape or layer.weight.dtype.kind != "f":
            raise ExhumeError(f"expected a matrix of numbers for {layer.name!r} in {path}, found {layer.weight.shape}")
        if layer.bias is not None and layer.bias.shape != layer.weight.shape[:1]:
            raise ExhumeError(f"expected {layer.weight.shape[0]} biases of {layer.name!r} in {path}, found others")
        if width is not None and layer.weight.shape[1] != width:
            raise UsageError(
                f"expected layers that read each other in {path}, found {layer.name!r}, which reads "
                f"{layer.weight.shape[1]} numbers behind a layer that gives {width}; {WAY_OUT}"
            )
        width = layer.weight.shape[0]
    return chain


def one_activation(names: Sequence[str], path: Path) -> str | None:
    """What is between the layers, if it is the same everywhere; None where the file says nothing."""
    different = list(dict.fromkeys(names))
    if len(different) > 1:
        raise UsageError(f"expected one activation in {path}, found {' and '.join(different)}; {WAY_OUT}")
    return different[0] if different else None
