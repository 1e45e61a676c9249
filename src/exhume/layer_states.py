"""What is known of one dense layer at several moments of its training: the target of the silent-units attack.

With the bias as a last column, W̃ = [W, b], and inputs x̃ = (x, 1), every step of gradient descent adds multiples of the
x̃_i to the rows of W̃. So any difference of two states of the layer, and any linear average of its gradients, is

    L = C X̃,        C_ki = 0 wherever unit k never fired on sample i.

A convolution is such a layer too: its units are channels, its samples the patches of all images (`readings.py`).

Where the states come from decides which weights tell the pattern of activity (`ends`): both ends of the training for a
difference, one end for an average of gradients.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.readings import Reading

FAINT = 0.05  # share of a gradient below zero up to which a unit is silent; above it only pictures can be told apart
Source = Literal["training", "checkpoints", "average", "momentum", "adam", "optimiser", "update", "stationary"]
AVERAGES: frozenset[Source] = frozenset({"momentum", "adam", "optimiser", "stationary"})
"""Those that are averages of gradients, whatever the optimiser made of each of them."""
SOURCES: dict[Source, str] = {
    "training": "the change in training since the known start",
    "checkpoints": "the change between two checkpoints",
    "average": "the difference between the weights and their moving average",
    "momentum": "the momentum buffer that the optimiser keeps",
    "adam": "the average of gradients that Adam keeps (exp_avg)",
    "optimiser": "the average of gradients that the optimiser keeps",
    "update": "a gradient, or the update of a federated client",
    "stationary": "the weights themselves, which weight decay has made an average of gradients",
}


@dataclass(frozen=True, eq=False, repr=False)
class LayerStates:
    """`target` is L (h × d, and a last column for the bias if `bias`); `ends` are the weights of the same shape whose
    pattern of activity is known, the published ones last. `start`: weights of which weight decay may have left a
    multiple in the target; `taken`: the multiple of them that the target has taken off already, 1 for a change.
    `leak`: the share of a gradient that a unit lets pass below zero, 0 for ReLU. `reads`: "inputs", or the name of
    what the layer reads where that is not the inputs themselves; `reading` is then the function that makes it of
    inputs, where it is known."""

    name: str
    target: Float[Tensor, "h c"]
    ends: tuple[Float[Tensor, "h c"], ...]
    bias: bool
    source: Source = "training"
    start: Float[Tensor, "h c"] | None = None
    leak: float = 0.0
    reads: str = "inputs"
    taken: float = 1.0
    reading: Reading | None = None

    def __post_init__(self) -> None:
        if not self.ends:
            raise ExhumeError(f"expected weights of layer {self.name!r} that tell which units fire, found none")
        for what, tensor in (("target", self.target), *(("state", end) for end in self.ends)):
            if tensor.ndim != 2 or tensor.shape != self.target.shape:
                shapes = f"{list(self.target.shape)} and {list(tensor.shape)}"
                raise ExhumeError(f"expected states of one shape of layer {self.name!r}, found {shapes}")
            if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
                raise ExhumeError(f"expected a finite {what} of layer {self.name!r}, found NaN, infinity or integers")

    def __repr__(self) -> str:
        return f"LayerStates({self.describe()})"

    @property
    def h(self) -> int:
        return len(self.target)

    @property
    def d(self) -> int:
        """The dimension of one input, without the 1 of the bias."""
        return self.target.shape[1] - self.bias

    def describe(self) -> str:
        read = "" if self.reads == "inputs" else f", which reads {self.reads}"
        return f"layer {self.name!r} ({self.d} -> {self.h}){read}: {SOURCES[self.source]}"


def changed(
    before: Float[Tensor, "g b"],
    after: Float[Tensor, "h c"],
    *,
    bias: bool,
    name: str = "layer",
    source: Source = "training",
    leak: float = 0.0,
    reads: str = "inputs",
    reading: Reading | None = None,
) -> LayerStates:
    """The change between two states of a layer. The same state twice is refused."""
    if before.shape != after.shape:
        raise ExhumeError(
            f"expected two states of layer {name!r} of one shape, found {list(before.shape)} and {list(after.shape)}"
        )
    target = after.double() - before.double()
    if not bool(target.any()):
        raise ExhumeError(
            f"expected two states of layer {name!r} that differ, found the same weights twice: nothing was trained "
            "between them, or the same file was given twice"
        )
    return LayerStates(name, target, (before, after), bias, source, before, leak, reads, reading=reading)


def averaged(
    gradients: Float[Tensor, "h c"],
    weights: Float[Tensor, "h c"],
    *,
    bias: bool,
    name: str = "layer",
    source: Source = "optimiser",
    leak: float = 0.0,
    reads: str = "inputs",
    reading: Reading | None = None,
) -> LayerStates:
    """An average of gradients (a momentum buffer, Adam's exp_avg, a client's update), and the weights they were taken
    at or near. Of a stationary layer, whose weights are such an average themselves, both are the same tensor.

    Weight decay that goes through the gradients, as torch's SGD and Adam have it, adds a multiple of the weights: all
    of them are c W̃(0) and combinations of inputs, so a multiple of the weights as they are takes it off again."""
    if not bool(gradients.any()):
        raise ExhumeError(f"expected gradients of layer {name!r}, found zeros")
    start = weights if source in ("momentum", "adam", "optimiser") else None
    return LayerStates(name, gradients, (weights,), bias, source, start, leak, reads, taken=0.0, reading=reading)
