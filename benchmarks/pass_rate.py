"""How close a pass over V comes to the machine's own matrix product.

    OMP_NUM_THREADS=1 python benchmarks/pass_rate.py [--gigabytes 0.5] [--repetitions 7] [--json]

A forward pass (Z = X̂Vᵀ and Φ = φ(Z), both kept) and a backward pass (`SpanLoss.gradient`: WV, with W made on the way)
cost 2 m p d operations each. Their rate is set against the best that torch.mm reaches for the product of one block of
the shape that the pass uses, in the same type, on the same rows of V, so that both read as much memory. `fit` is what
an attack does with a forward pass (`SpanLoss.fit`: also the Gram matrix ΦΦᵀ, the coefficients and the residual); only
the 2 m p d operations of its pass are counted, so its percentage says what the rest costs. All are measured in turn, so
that a busy moment of the machine strikes each of them alike, and the best of each counts. Prints a table, and with
--json one JSON object as the last line.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from exhume.activations import activation
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features import memory
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, blocks, hold

DIMENSIONS = (768, 3072)
CANDIDATES = (20, 100)
DTYPE = torch.float32


@dataclass(frozen=True)
class Rates:
    """GFLOP/s of the two passes, and of plain matrix products of the same shapes."""

    d: int
    m: int
    p: int
    block_rows: int
    forward: float
    fit: float
    forward_product: float
    backward: float
    backward_product: float

    @property
    def forward_percent(self) -> float:
        return 100 * self.forward / self.forward_product

    @property
    def fit_percent(self) -> float:
        return 100 * self.fit / self.forward_product

    @property
    def backward_percent(self) -> float:
        return 100 * self.backward / self.backward_product


def measure(d: int, m: int, gigabytes: float, repetitions: int) -> Rates:
    p = round(gigabytes * 1e9 / (4 * d))
    rows = hold(DrawnRows(seed=0, p=p, d=d))
    generator = torch.Generator().manual_seed(0)
    candidates = torch.randn(m, d, generator=generator, dtype=DTYPE)
    loss = SpanLoss(RidgeFeatures(rows, activation("relu")), torch.randn(1, p, generator=generator, dtype=DTYPE))
    fit = loss.fit(candidates)
    weights = torch.randn(m, p, generator=generator, dtype=DTYPE)
    works: dict[str, Callable[[], object]] = {
        "forward": lambda: forward(loss.features, candidates),
        "fit": lambda: loss.fit(candidates),
        "forward_product": lambda: multiply_forward(rows, candidates),
        "backward": lambda: loss.gradient(fit),
        "backward_product": lambda: multiply_backward(rows, weights),
    }
    seconds = best_times(works, repetitions)
    rates = {name: 2 * m * p * d / time_taken / 1e9 for name, time_taken in seconds.items()}
    return Rates(d=d, m=m, p=p, block_rows=min(rows.block_rows, p), **rates)


def forward(features: RidgeFeatures, candidates: torch.Tensor) -> None:
    """Z and Φ in full, as an attack keeps them."""
    preactivations = memory.empty(len(candidates), features.p, candidates)
    mapped = memory.empty(len(candidates), features.p, candidates)
    with torch.no_grad():
        for block, values in features.preactivation_blocks(candidates, out=preactivations):
            mapped[:, block] = features.activation.value(values)


def multiply_forward(rows: HeldRows, candidates: torch.Tensor) -> None:
    """X̂ V_bᵀ for every block, into memory that is there already: nothing but products."""
    target = torch.empty(len(candidates), min(rows.block_rows, rows.p), dtype=DTYPE)
    for block in blocks(rows):
        torch.mm(candidates, rows.block(block.start, block.stop).T, out=target[:, : block.stop - block.start])


def multiply_backward(rows: HeldRows, weights: torch.Tensor) -> None:
    target = torch.empty(len(weights), rows.d, dtype=DTYPE)
    for block in blocks(rows):
        torch.mm(weights[:, block], rows.block(block.start, block.stop), out=target)


def best_times(works: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    best = dict.fromkeys(works, math.inf)
    for _ in range(repetitions):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=0.5, help="size of V")
    parser.add_argument("--repetitions", type=int, default=7, help="measurements of each, of which the best counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    if options.repetitions < 5 or not options.gigabytes > 0:
        parser.error("expected at least 5 repetitions and a positive size")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {DTYPE}; GFLOP/s")
    print("     d    m        p  block |  forward       fit   torch.mm      %  fit % |  backward  torch.mm      %")
    measured = []
    for d in DIMENSIONS:
        for m in CANDIDATES:
            found = measure(d, m, options.gigabytes, options.repetitions)
            measured.append(found)
            ahead = f"{found.forward:8.1f} {found.fit:9.1f} {found.forward_product:10.1f} "
            ahead += f"{found.forward_percent:6.1f} {found.fit_percent:6.1f}"
            backward = f"{found.backward:9.1f} {found.backward_product:9.1f} {found.backward_percent:6.1f}"
            print(f"{d:6d} {m:4d} {found.p:8d} {found.block_rows:6d} | {ahead} | {backward}", flush=True)
    if options.json:
        lines = [
            asdict(found)
            | {name: getattr(found, name) for name in ("forward_percent", "fit_percent", "backward_percent")}
            for found in measured
        ]
        print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "passes": lines}))


if __name__ == "__main__":
    main()
