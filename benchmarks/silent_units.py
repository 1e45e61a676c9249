"""The silent-units attack on ordinary networks: the table of docs/silent-units.md.

    python benchmarks/silent_units.py --data-dir DIR [--cases n100,h250,...] [--seeds 5]

n is not told; the truth is only used for scoring. Errors are over each sample's own norm, after one-to-one matching.
"""

import argparse
import resource
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ordinary_networks import LEAKS, Trained, cifar, faces, flipped, train
from silent_scoring import attack
from torch import Tensor

from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.layer_states import LayerStates, changed
from exhume.observing.optimiser_states import optimiser_layer
from exhume_papers.studies.ordinary_network import first_layer, train_faces


@dataclass(frozen=True, eq=False)
class Case:
    """How a victim is made of a data folder and a seed: the states of its layer, and the samples it was trained on."""

    title: str
    make: Callable[[Path, int], tuple[LayerStates, Tensor]]
    seconds: float = 120.0


def _images(
    n: int, *widths: int, activation: str = "relu", flips: bool = False, steps: int = 600, **options: Any
) -> Callable:  # type: ignore[type-arg]
    def make(data_dir: Path, seed: int) -> tuple[LayerStates, Tensor]:
        inputs, labels = cifar(data_dir, n, first=(200 * seed) % 900 if n <= 100 else 0)
        made = train(inputs, labels, widths, seed=seed, activation=activation, flips=flips, steps=steps, **options)
        seen = torch.cat([inputs, flipped(inputs)]) if flips else inputs
        return changed(made.start, made.end, bias=True, leak=LEAKS[activation]), seen

    return make


def _adam(data_dir: Path, seed: int) -> tuple[LayerStates, Tensor]:
    inputs, labels = cifar(data_dir, 50, first=200 * seed)
    made = train(inputs, labels, (1000, 1000, 10), seed=seed, steps=50, optimiser="Adam")
    return optimiser_layer(made.model, made.optimiser.state_dict(), "0"), inputs


def _faces(raw: bool) -> Callable:  # type: ignore[type-arg]
    def make(data_dir: Path, seed: int) -> tuple[LayerStates, Tensor]:
        inputs, labels = faces(50, seed, raw)
        made: Trained = train(inputs, labels, (2000, 2), seed=seed)
        return changed(made.start, made.end, bias=True), inputs

    return make


def _demo(raw: bool) -> Callable:  # type: ignore[type-arg]
    """The faces and the network of `exhume demo`."""

    def make(data_dir: Path, seed: int) -> tuple[LayerStates, Tensor]:
        data = load(DataConfig(name="faces", samples=50, norm="keep", seed=seed))
        inputs = data.inputs.float()
        if raw:
            inputs = data.preparation.to_pixels(inputs, data.preparation.scale).flatten(1)
        before, after = train_faces(inputs, seed)
        return changed(first_layer(before), first_layer(after), bias=True), inputs

    return make


CASES = {
    "n100": Case("CIFAR-10, n = 100, 3072-1000-1000-10", _images(100, 1000, 1000, 10)),
    "n50": Case("the same, n = 50", _images(50, 1000, 1000, 10)),
    "h500": Case("the same, n = 50, 500 units", _images(50, 500, 500, 10)),
    "h250": Case("the same, n = 50, 250 units", _images(50, 250, 250, 10)),
    "flips": Case("3072-1000-1000-10, n = 50 and their mirror images", _images(50, 1000, 1000, 10, flips=True)),
    "leaky": Case("leaky ReLU, n = 50", _images(50, 1000, 1000, 10, activation="leaky")),
    "gelu": Case("GELU, n = 50", _images(50, 1000, 1000, 10, activation="gelu")),
    "adam": Case("Adam's exp_avg after 50 steps, n = 50", _adam),
    "faces": Case("faces, standardised, 625-2000-2, n = 50", _faces(raw=False)),
    "raw-faces": Case("faces, raw pixels, 625-2000-2, n = 50", _faces(raw=True)),
    "demo": Case("the demo's faces, standardised", _demo(raw=False)),
    "demo-raw": Case("the demo's faces, raw pixels", _demo(raw=True)),
    "n200": Case("CIFAR-10, n = 200, 3072-2000-10", _images(200, 2000, 10), seconds=300.0),
    "n500": Case(
        "CIFAR-10, n = 500, 3072-5000-10, rate 0.001",
        _images(500, 5000, 10, lr=0.001, momentum=0.9),
        seconds=900.0,
    ),
    "n500-fast": Case("the same, rate 0.01: features move far", _images(500, 5000, 10), seconds=900.0),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(name for name in CASES if not name.startswith(("n200", "n500"))))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    print("| victim | rank | within 0.1 | called recovered | wrongly | median error | worst error | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.cases.split(","):
        case = CASES[name]
        lines = [_line(case, options.data_dir, seed) for seed in range(options.first, options.first + options.seeds)]
        columns = [", ".join(column) for column in zip(*lines, strict=True)]
        print(f"| {case.title} | {' | '.join(columns)} |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.1f} GiB; {statistics.mean([torch.get_num_threads()]):.0f} threads")


def _line(case: Case, data_dir: Path, seed: int) -> tuple[str, ...]:
    states, samples = case.make(data_dir, seed)
    told = attack(states, samples, seed=seed, budget_seconds=case.seconds).score
    rank = "none" if told.rank is None else str(told.rank)
    numbers = f"{told.median:.0e}", f"{told.worst:.0e}", f"{told.seconds:.0f}"
    return rank, f"{told.within} of {told.samples}", str(told.called), str(told.wrong), *numbers


if __name__ == "__main__":
    main()
