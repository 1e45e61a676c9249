"""A head alone, as people keep it: its matrix in a safetensors file, for embeddings that are in files too."""

from pathlib import Path

import torch
from torch import Tensor

from exhume.attacks.probes.ranking import Probe
from exhume.errors import ExhumeError, UsageError
from exhume.files import read_any_tensors
from exhume.layer_states import LayerStates, changed
from exhume.networks.head import with_bias


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
    tensors = read_any_tensors(path, f"expected a head in {path}, found no such file")
    layers = [name for name, tensor in tensors.items() if tensor.ndim == 2 and name.rpartition(".")[2] == "weight"]
    if len(layers) != 1:
        found = ", ".join(sorted(tensors)[:8]) or "no tensor"
        raise ExhumeError(f"expected one k x h tensor named weight (and a bias) in {path}, found {found}")
    weight = tensors[layers[0]]
    bias = tensors.get(layers[0].removesuffix("weight") + "bias")
    if not weight.is_floating_point() or (bias is not None and bias.shape != (len(weight),)):
        raise ExhumeError(f"expected a floating-point weight and one bias per output in {path}, found others")
    if not torch.isfinite(weight).all() or (bias is not None and not torch.isfinite(bias).all()):
        raise ExhumeError(f"expected finite numbers in {path}, found NaN or infinite ones")
    return _Head(weight, bias)
