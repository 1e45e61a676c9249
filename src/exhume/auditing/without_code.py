"""A user's network from its file alone: a chain of dense layers, whose names, shapes and order the tensors tell."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from exhume.activations import activation as named_activation
from exhume.auditing.folder_settings import CONFIG, configured_activation
from exhume.auditing.tried_activations import tried_out
from exhume.auditing.weights_folder import tensors_in, weights_in
from exhume.errors import ExhumeError
from exhume.experiments.truth import Truth
from exhume.formats.chain_of_tensors import order_of
from exhume.formats.chain_reading import chain_of
from exhume.formats.dense_chain import DenseChain
from exhume.formats.linear_head import Scaler
from exhume.formats.reading import kind_of, read_contents
from exhume.observing.beside import Beside
from exhume.observing.weights_file import WeightsFile

ASSUMED = "relu"
DRAWN = "The start was drawn again from the seed as PyTorch draws default linear layers one after the other."
PARTS = ("weight", "bias")
_TENSORS = ("safetensors", "torch", "shards")


class Chain(nn.Module):
    """Dense layers under their own names, with one activation between them."""

    def __init__(self, layers: Mapping[str, tuple[Tensor, Tensor | None]], activation: str) -> None:
        super().__init__()
        self.order = tuple(layers)
        self.activation = named_activation(activation).name
        for name, (weight, bias) in layers.items():
            place: nn.Module = self
            *above, last = name.split(".")
            for part in above:
                if part not in dict(place.named_children()):
                    place.add_module(part, nn.Module())
                place = place.get_submodule(part)
            kind = weight.dtype if weight.dtype in (torch.float32, torch.float64) else torch.float32
            dense = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None, dtype=kind)
            place.add_module(last, dense)

    def forward(self, inputs: Tensor) -> Tensor:
        phi, values = named_activation(self.activation).value, inputs
        for number, name in enumerate(self.order):
            values = self.get_submodule(name)(values if number == 0 else phi(values))
        return values


@dataclass(frozen=True, eq=False)
class ReadNetwork:
    """The file, its layers in order, and what the file says of the activation (None: nothing)."""

    file: WeightsFile
    order: tuple[str, ...]
    activation: str | None
    notes: tuple[str, ...]
    scaler: Scaler | None = None
    """What the file does to a record first."""
    source: str = "the file"
    """What says the activation."""

    def module(self, activation: str) -> Chain:
        tensors = self.file.tensors
        return Chain(
            {name: (tensors[f"{name}.weight"], tensors.get(f"{name}.bias")) for name in self.order}, activation
        )

    def drawn(self, seed: int) -> Chain:
        """The same layers as PyTorch's own defaults draw them, one after the other, straight after the seed."""
        found = self.module(ASSUMED)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for name in self.order:
                layer = found.get_submodule(name)
                assert isinstance(layer, nn.Linear)
                layer.reset_parameters()
        return found


def read_network(path: Path) -> ReadNetwork:
    """Reads a file, or the weights of a folder, as a chain of dense layers; nothing of it is run."""
    file = weights_in(path)
    kind = kind_of(file)
    if kind not in (None, *_TENSORS):
        return _of_chain(chain_of(read_contents(file, kind), file), file)
    network, named = chain_in(tensors_in(path), in_order=kind == "torch"), configured_activation(path)
    return network if named is None else replace(network, activation=named, source=CONFIG)


def notes_of(
    network: ReadNetwork, asked: str | None, truth: Truth | None, start: Mapping[str, Tensor] | None = None
) -> tuple[str, ...]:
    """What was assumed, and how it fits the records. The attack does not see them."""
    activation = asked or network.activation or ASSUMED
    widths = [network.file.tensors[f"{name}.weight"].shape for name in network.order]
    shown = "-".join(str(width) for width in (widths[0][1], *(shape[0] for shape in widths)))
    note = f"The network was read from the file, without code: dense layers {shown}, {activation} between them"
    if asked is not None:
        note += " (as you gave it)."
    elif network.activation is not None:
        note += f" (as {network.source} says)."
    else:
        note += f". The file does not say the activation: {activation} is assumed; give --activation if it is another."
    known = asked is None and network.activation is not None and network.source != CONFIG
    tried = tried_out(network.order, network.file.tensors, start, activation, truth, known)
    return (note, *network.notes, *tried)


def start_of(network: ReadNetwork, path: Path) -> Mapping[str, Tensor]:
    """The weights before training, under the names of those after it. Layers of other names count by their places.

    A file with some of the layers alone says nothing of the others.
    """
    if kind_of(weights_in(path)) in (None, *_TENSORS):
        tensors = tensors_in(path).tensors
        if set(tensors) < set(network.file.tensors):
            return tensors
    start = read_network(path)
    if start.order == network.order or set(start.file.tensors) == set(network.file.tensors):
        return start.file.tensors
    mine, theirs = network.file.tensors, start.file.tensors
    if len(start.order) != len(network.order):
        raise ExhumeError(
            f"expected a start of {len(network.order)} layers in {path}, found {len(start.order)}: another network"
        )
    renamed: dict[str, Tensor] = {}
    for own, other in zip(network.order, start.order, strict=True):
        for part in PARTS:
            if f"{other}.{part}" in theirs:
                renamed[f"{own}.{part}"] = theirs[f"{other}.{part}"]
    wrong = [name for name in mine if name not in renamed or renamed[name].shape != mine[name].shape]
    if wrong:
        raise ExhumeError(
            f"expected a start with {wrong[0]!r} of its shape in {path}, found none; give the same network"
        )
    return renamed


def chain_in(file: WeightsFile, in_order: bool) -> ReadNetwork:
    """`in_order`: whether the file keeps the order in which layers were defined."""
    shapes = {name: tuple(tensor.shape) for name, tensor in file.tensors.items()}
    found = order_of(shapes, file.path, in_order)
    how = "the order in the file" if in_order and found.names == _listed(shapes) else "the numbers in their names"
    notes = () if found.only_one else (f"Several orders of the layers fit their shapes: {how} was taken.",)
    return ReadNetwork(file, found.names, None, notes)


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    return tuple(name.removesuffix(".weight") for name in shapes if name.endswith(".weight"))


def _of_chain(chain: DenseChain, path: Path) -> ReadNetwork:
    tensors: dict[str, Tensor] = {}
    for layer in chain.layers:
        tensors[f"{layer.name}.weight"] = _tensor(layer.weight)
        if layer.bias is not None:
            tensors[f"{layer.name}.bias"] = _tensor(layer.bias)
    names = tuple(layer.name for layer in chain.layers)
    beside = Beside(_optimiser(chain), _average(chain))
    file = WeightsFile(path, read_kind(path), tensors, path.stat().st_size, beside)
    return ReadNetwork(file, names, chain.activation, chain.notes, chain.scaler)


def read_kind(path: Path) -> str:
    return {"onnx": "ONNX", "keras": "Keras", "h5": "Keras, HDF5", "skops": "scikit-learn, skops"}[kind_of(path) or ""]


def _tensor(values: np.ndarray) -> Tensor:
    kind = np.float64 if values.dtype == np.float64 else np.float32
    return torch.from_numpy(np.array(values, dtype=kind, order="C"))


def _average(chain: DenseChain) -> dict[str, Tensor] | None:
    if chain.average is None:
        return None
    named = zip(chain.layers, chain.average, strict=True)
    both = [(f"{layer.name}.{part}", own) for layer, pair in named for part, own in zip(PARTS, pair, strict=True)]
    return {name: _tensor(own) for name, own in both if own is not None}


def _optimiser(chain: DenseChain) -> dict[str, Any] | None:
    """As torch writes it, with the names of the parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    names: list[str] = []
    for buffer, values in chain.buffers.items():
        for layer, pair in zip(chain.layers, values, strict=True):
            for part, kept in zip(PARTS, pair, strict=True):
                if kept is not None:
                    state[len(names)] = {buffer: _tensor(kept)}
                    names.append(f"{layer.name}.{part}")
    return (
        {"state": state, "param_groups": [{"params": list(range(len(names))), "param_names": names}]} if names else None
    )
