"""`exhume gauge`: what a model of this size can give away, before any attack."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.options import JsonOption
from exhume.cli.output import print_json, say


def gauge(
    weights: Annotated[Path | None, typer.Argument(help="A safetensors file: its header gives the parameters.")] = None,
    params: Annotated[int | None, typer.Option(help="p, the number of trained parameters.")] = None,
    dim: Annotated[int | None, typer.Option(help="d, the numbers in one training sample.")] = None,
    samples: Annotated[int | None, typer.Option(help="n, the number of training samples, if known.")] = None,
    json: JsonOption = False,
) -> None:
    """Say what weights of this size can hold: p/n, p/(dn), the zone, and how many samples in full.

    Example: exhume gauge --params 6000 --dim 100 --samples 20
    """
    from exhume.errors import UsageError
    from exhume.theory import explain
    from exhume.theory import gauge as measure

    if weights is not None:
        params, dim, samples = _from_file(weights, params, dim, samples)
    if params is None or dim is None:
        raise UsageError("expected --params P and --dim D (or a weights file and --dim D), found one of them missing")
    result = measure(params, dim, samples)
    for sentence in explain(result):
        say(sentence, json)
    if json:
        keys = ("p", "d", "n", "ratio", "labels_ratio", "capacity", "zone")
        print_json({key: getattr(result, key) for key in keys})


def _from_file(
    weights: Path, params: int | None, dim: int | None, samples: int | None
) -> tuple[int, int | None, int | None]:
    """p from the header of a weights file; p, d and the told n from an observation of exhume's own."""
    from exhume.errors import ExhumeError
    from exhume.tensor_header import read_header

    header = read_header(weights)
    parameters, told_dim, told_samples = header.parameters, None, None
    if header.exhume.get("kind") == "observation":
        try:
            features = header.exhume["network" if "network" in header.exhume else "rows"]
            parameters, told_dim = header.entries["weights"].numbers, features.get("d")
            told_samples = header.exhume["knowledge"]["samples"]
        except (KeyError, TypeError, AttributeError) as problem:
            raise ExhumeError(f"expected a complete observation in {weights}, found damage at {problem}") from problem
    return (
        parameters if params is None else params,
        told_dim if dim is None else dim,
        told_samples if samples is None else samples,
    )
