"""A head alone, as people keep it: a matrix in a file of tensors or of Keras, or a linear model of scikit-learn."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.probes.ranking import Probe
from exhume.data.records import Records
from exhume.errors import ExhumeError, UsageError
from exhume.files import read_any_tensors
from exhume.formats.chain_of_keras import chain_of_keras
from exhume.formats.linear_head import Prepare, head_of
from exhume.formats.reading import kind_of, read_contents
from exhume.layer_states import LayerStates, changed
from exhume.networks.head import with_bias
from exhume.observing.weights_file import read_weights

MODELS = ("skops", "onnx")
KERAS = ("keras", "h5")


@dataclass(frozen=True, eq=False)
class HeadFile:
    """A head, and what its file says of it: the loss, its classes, and what it does to records first."""

    probe: Probe
    loss: str | None = None
    classes: tuple[Any, ...] | None = None
    prepare: Prepare | None = None

    def prepared(self, records: Records, what: str) -> Records:
        """Records as the head reads them, with labels as numbers of its outputs."""
        ready = records.labelled(self.classes, what)
        if self.prepare is None:
            return ready
        width = self.probe.change.shape[1] - self.probe.constant
        if records.rows.shape[1] != width:
            raise UsageError(f"expected {width} numbers per record in {what}, found {records.rows.shape[1]}")
        rows = torch.from_numpy(self.prepare(ready.rows.double().numpy()))
        return replace(ready, rows=rows)


def read_head_file(path: Path, initial: Path | None = None) -> HeadFile:
    """A linear model of scikit-learn, or a matrix, which says nothing but its numbers."""
    kind = kind_of(path) if path.is_file() else None
    if kind not in MODELS:
        return HeadFile(read_head(path, initial))
    if initial is not None:
        raise UsageError(f"expected no --initial with a model of scikit-learn, found {initial}; its solvers forget it")
    found = head_of(read_contents(path, kind), path)
    bias = None if found.bias is None else torch.from_numpy(found.bias)
    weights = with_bias(torch.from_numpy(found.weight), bias).double()
    if not torch.isfinite(weights).all():
        raise ExhumeError(f"expected finite numbers in {path}, found NaN or infinite ones")
    return HeadFile(Probe(weights, weights, constant=bias is not None), found.loss, found.classes, found.prepare)


def read_hidden(path: Path, initial: Path | None) -> LayerStates:
    """A hidden layer with ReLU after it, at both ends of its training: its change holds single embeddings."""
    if initial is None:
        raise UsageError("expected --initial with --hidden, the layer before training, found none")
    end, start = _matrix(path), _matrix(initial)
    before, after = start.weights.float(), end.weights.float()  # as trained: what float64 adds is no rounding
    return changed(before, after, bias=end.biased, name=path.name, reads="frozen features")


def read_head(path: Path, initial: Path | None = None) -> Probe:
    """W(T) (k × h) and its bias, under `weight` and `bias` or as the only layer of the file: `fc.weight`, `fc.bias`.

    `initial` holds W(0) likewise; without it the head is taken to have started at zero.
    """
    head = _matrix(path)
    if initial is None:
        return Probe(head.weights, head.weights, constant=head.biased)
    start = _matrix(initial)
    if start.weights.shape != head.weights.shape:
        raise ExhumeError(
            f"expected an initial head of shape {list(head.weights.shape)} in {initial}, "
            f"found {list(start.weights.shape)} (with the bias as a column)"
        )
    return Probe(head.weights - start.weights, head.weights, constant=head.biased)


class _Head:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.biased = bias is not None
        self.weights = with_bias(weight, bias).double()


def _matrix(path: Path) -> _Head:
    kind = kind_of(path) if path.is_file() else None
    if kind in KERAS:
        layers_of_keras = chain_of_keras(read_contents(path, kind), path).layers
        if len(layers_of_keras) != 1:
            raise ExhumeError(f"expected one dense layer in {path}, found {len(layers_of_keras)}")
        weight, bias = (_tensor(values) for values in (layers_of_keras[0].weight, layers_of_keras[0].bias))
    else:
        weight, bias = _stored(_tensors(path, kind), path)
    if weight is None or not weight.is_floating_point() or (bias is not None and bias.shape != (len(weight),)):
        raise ExhumeError(f"expected a floating-point weight and one bias per output in {path}, found others")
    if not torch.isfinite(weight).all() or (bias is not None and not torch.isfinite(bias).all()):
        raise ExhumeError(f"expected finite numbers in {path}, found NaN or infinite ones")
    return _Head(weight, bias)


def _tensors(path: Path, kind: str | None) -> Mapping[str, Tensor]:
    if kind in (None, "safetensors"):
        return read_any_tensors(path, f"expected a head in {path}, found no such file")
    if kind == "torch":
        return read_weights(path).tensors
    found = read_contents(path, kind)  # a pickle, or what is not read, is refused with the line that converts it
    raise UsageError(f"expected a file with a head at {path}, found {found.kind}; save weight and bias as safetensors")


def _stored(tensors: Mapping[str, Tensor], path: Path) -> tuple[Tensor, Tensor | None]:
    layers = [name for name, tensor in tensors.items() if tensor.ndim == 2 and name.rpartition(".")[2] == "weight"]
    if len(layers) != 1:
        found = ", ".join(sorted(tensors)[:8]) or "no tensor"
        raise ExhumeError(f"expected one k x h tensor named weight (and a bias) in {path}, found {found}")
    return tensors[layers[0]], tensors.get(layers[0].removesuffix("weight") + "bias")


def _tensor(values: np.ndarray | None) -> Tensor | None:
    return None if values is None else torch.from_numpy(np.array(values))
