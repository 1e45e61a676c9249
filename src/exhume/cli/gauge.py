"""`exhume gauge`: what a model of this size can give away, before any attack."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from exhume.cli.output import print_json, say
from exhume.requests.request import Option, Request

if TYPE_CHECKING:
    from exhume.tensor_header import Header

MOST_BLOCKS = 40


class GaugeRequest(Request):
    command: ClassVar[str] = "gauge"

    weights: Annotated[Path | None, Option("A safetensors file, of which the header is read.", argument=True)] = None
    params: Annotated[int | None, Option("p, the number of trained parameters.")] = None
    dim: Annotated[int | None, Option("d, the numbers in one training sample.")] = None
    samples: Annotated[int | None, Option("n, the number of training samples, if known.")] = None
    head: Annotated[str | None, Option("With a file: count this layer or tensor only, e.g. fc.")] = None


def gauge(request: GaugeRequest, json: bool) -> None:
    """Say what weights of this size can hold: p/n, p/(dn), the zone, and how many samples in full.

    Example: exhume gauge --params 6000 --dim 100 --samples 20
    """
    from exhume.errors import UsageError
    from exhume.theory import explain
    from exhume.theory import gauge as measure

    params, dim, samples = request.params, request.dim, request.samples
    blocks: dict[str, int] = {}
    if request.weights is not None:
        params, dim, samples, blocks = _from_file(request.weights, params, dim, samples, request.head)
    elif request.head is not None:
        raise UsageError("expected a weights file with --head, found none")
    if params is None or dim is None:
        raise UsageError("expected --params P and --dim D (or a weights file and --dim D), found one of them missing")
    result = measure(params, dim, samples)
    for name, count in list(blocks.items())[:MOST_BLOCKS]:
        say(f"{count:>16,}  {name}", json)
    if len(blocks) > MOST_BLOCKS:
        say(f"{'':>16}  and {len(blocks) - MOST_BLOCKS} more layers (--json lists all)", json)
    for sentence in explain(result):
        say(sentence, json)
    if json:
        keys = ("p", "d", "n", "ratio", "labels_ratio", "capacity", "zone")
        print_json({key: getattr(result, key) for key in keys} | ({"blocks": blocks} if blocks else {}))


def _from_file(
    weights: Path, params: int | None, dim: int | None, samples: int | None, head: str | None
) -> tuple[int, int | None, int | None, dict[str, int]]:
    """p from the header of a weights file; p, d and the told n from an observation of exhume's own."""
    from exhume.errors import ExhumeError
    from exhume.tensor_header import read_header

    header = read_header(weights)
    if header.exhume.get("kind") == "observation":
        try:
            features = header.exhume["network" if "network" in header.exhume else "rows"]
            parameters, told_dim = header.entries["weights"].numbers, features.get("d")
            told_samples = header.exhume["knowledge"]["samples"]
            if not all(told is None or type(told) is int for told in (told_dim, told_samples)):
                raise TypeError(f"the sizes {str(told_dim)[:40]} and {str(told_samples)[:40]}")
        except (KeyError, TypeError, AttributeError) as problem:
            raise ExhumeError(f"expected a complete observation in {weights}, found damage at {problem}") from problem
        return (
            parameters if params is None else params,
            told_dim if dim is None else dim,
            told_samples if samples is None else samples,
            {},
        )
    blocks = _blocks(header)
    counted = header.parameters if head is None else _count(header, head, weights)
    return counted if params is None else params, dim, samples, blocks


def _blocks(header: "Header") -> dict[str, int]:
    """Parameters of each layer: tensors that share everything before the last dot of their names."""
    blocks: dict[str, int] = {}
    for name, entry in header.entries.items():
        layer = name.rpartition(".")[0] or name
        shown = layer if layer.isprintable() else repr(layer)
        blocks[shown] = blocks.get(shown, 0) + entry.numbers
    return blocks


def _count(header: "Header", head: str, weights: Path) -> int:
    from exhume.errors import UsageError

    own = [entry.numbers for name, entry in header.entries.items() if name == head or name.startswith(f"{head}.")]
    if not own:
        some = ", ".join(map(repr, list(_blocks(header))[:5]))
        raise UsageError(f"expected a layer {head!r} in {weights}, found {some}")
    return sum(own)
