"""`exhume gauge`: what a model of this size can give away, before any attack."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from exhume.cli.output import print_json, say
from exhume.requests.request import Option, Request

if TYPE_CHECKING:
    from exhume.layer_kinds import Shape, StoredLayer
    from exhume.tensor_header import Header

MOST_BLOCKS = 40
TRAINED = ("float16", "bfloat16", "float32", "float64", "F16", "BF16", "F32", "F64")
OPTIMISERS = ("optimizer", "optimizer_weights")
"""Of Keras: beside the weights."""


class GaugeRequest(Request):
    command: ClassVar[str] = "gauge"

    weights: Annotated[
        Path | None,
        Option("safetensors, of which the header is read; PyTorch, ONNX, Keras, skops; or a folder.", argument=True),
    ] = None
    params: Annotated[int | None, Option("p, the number of trained parameters.")] = None
    dim: Annotated[int | None, Option("d, the numbers in one training sample.")] = None
    samples: Annotated[int | None, Option("n, the number of training samples, if known.")] = None
    head: Annotated[str | None, Option("With a file: count this layer or tensor only, e.g. fc.")] = None


def gauge(request: GaugeRequest, json: bool) -> None:
    """Say what weights of this size can hold: p/n, p/(dn), the zone, and how many samples in full.

    Example: exhume gauge --params 6000 --dim 100 --samples 20
    """
    from exhume.errors import UsageError
    from exhume.theory import LAST_LAYER, explain
    from exhume.theory import gauge as measure

    counted = _Counted(request.params, request.dim, request.samples)
    if request.weights is not None:
        counted = _from_file(request.weights, counted, request.head)
    elif request.head is not None:
        raise UsageError("expected a weights file with --head, found none")
    if counted.params is None or counted.dim is None:
        raise UsageError("expected --params P and --dim D (or a weights file and --dim D), found one of them missing")
    result = measure(counted.params, counted.dim, counted.samples)
    for layer in counted.layers[:MOST_BLOCKS]:
        say(f"{layer.parameters:>16,}  {_printable(layer.name)}: {layer.what}", json)
    if len(counted.layers) > MOST_BLOCKS:
        say(f"{'':>16}  and {len(counted.layers) - MOST_BLOCKS} more layers (--json lists all)", json)
    for sentence in explain(result, counted.whose or LAST_LAYER):
        say(sentence, json)
    if json:
        keys = ("p", "d", "n", "ratio", "labels_ratio", "capacity", "zone")
        blocks = {_printable(layer.name): layer.parameters for layer in counted.layers}
        kinds = {_printable(layer.name): layer.what for layer in counted.layers}
        more = {"blocks": blocks, "layers": kinds} if counted.layers else {}
        print_json({key: getattr(result, key) for key in keys} | more)


@dataclass(frozen=True)
class _Counted:
    """What is counted, `whose` parameters they are (empty: those of a last layer), and the layers of the file."""

    params: int | None
    dim: int | None
    samples: int | None
    whose: str = ""
    layers: "tuple[StoredLayer, ...]" = ()


def _from_file(weights: Path, asked: _Counted, head: str | None) -> _Counted:
    """p from a weights file; p, d and the told n from an observation of exhume's own. What was asked for is first."""
    from exhume.layer_kinds import stored_layers

    if weights.is_dir():
        from exhume.auditing.weights_folder import weights_in  # which takes torch

        weights = weights_in(weights)
    header = _header(weights)
    if header is not None and header.exhume.get("kind") == "observation":
        return _from_observation(weights, header, asked)
    shapes = _shapes(weights, header)
    layers = stored_layers(shapes, asked.dim)
    params, whose = sum(layer.parameters for layer in layers), "A file"
    if head is not None:
        params, whose = _count(shapes, head, weights), f"Layer {_printable(head)}"
    if asked.params is not None:
        params, whose = asked.params, ""
    return _Counted(params, asked.dim, asked.samples, whose, layers)


def _header(weights: Path) -> "Header | None":
    """Of a safetensors file, without torch. What is of no known format is held to be one if it is called so."""
    from exhume.formats.reading import kind_of
    from exhume.tensor_header import read_header

    safetensors = weights.suffix == ".safetensors" or not weights.is_file() or kind_of(weights) == "safetensors"
    return read_header(weights) if safetensors else None


def _shapes(weights: Path, header: "Header | None") -> "dict[str, Shape]":
    if header is not None:
        return {name: entry.shape for name, entry in header.entries.items()}
    from exhume.errors import ExhumeError
    from exhume.formats.chain_reading import chain_of
    from exhume.formats.reading import kind_of, read_contents
    from exhume.observing.weights_file import read_weights

    kind = kind_of(weights)
    if kind == "torch":
        return {name: tuple(tensor.shape) for name, tensor in read_weights(weights).tensors.items()}
    contents = read_contents(weights, kind)
    try:
        return {
            f"{layer.name}.{part}": values.shape
            for layer in chain_of(contents, weights).layers
            for part, values in (("weight", layer.weight), ("bias", layer.bias))
            if values is not None
        }
    except ExhumeError:  # no chain of dense layers: whatever could be trained in it
        shapes = {
            name: array.shape for name, array in contents.arrays.items() if array.dtype in TRAINED and array.shape
        }
    kept = {name: shape for name, shape in shapes.items() if not name.startswith(OPTIMISERS)}
    if not kept:
        raise ExhumeError(f"expected weights in {weights}, found no array of floating point")
    return kept


def _from_observation(weights: Path, header: "Header", asked: _Counted) -> _Counted:
    from exhume.errors import ExhumeError

    try:
        features = header.exhume["network" if "network" in header.exhume else "rows"]
        params, dim = header.entries["weights"].numbers, features.get("d")
        samples = header.exhume["knowledge"]["samples"]
        if not all(given is None or type(given) is int for given in (dim, samples)):
            raise TypeError(f"the sizes {str(dim)[:40]} and {str(samples)[:40]}")
    except (KeyError, TypeError, AttributeError) as problem:
        raise ExhumeError(f"expected a complete observation in {weights}, found damage at {problem}") from problem
    return _Counted(
        params if asked.params is None else asked.params,
        dim if asked.dim is None else asked.dim,
        samples if asked.samples is None else asked.samples,
    )


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _count(shapes: "dict[str, Shape]", head: str, weights: Path) -> int:
    from exhume.errors import UsageError
    from exhume.layer_kinds import stored_layers

    own = [math.prod(shape) for name, shape in shapes.items() if name == head or name.startswith(f"{head}.")]
    if not own:
        some = ", ".join(repr(layer.name) for layer in stored_layers(shapes)[:5])
        raise UsageError(f"expected a layer {head!r} in {weights}, found {some}")
    return sum(own)
