"""A record that was deleted from a ridge model on 4,096 random features, and what two versions give back of it.

    python benchmarks/deleted_record.py [--first 400] [--records 5] [--json]

1,000 of scikit-learn's digits, ReLU features with rows drawn from N(0, 1/d), ten outputs. The model is fitted with and
without one record, for each of three penalties. The attacker has both versions, the features, and the 797 other digits.
The penalty is not told. Records are numbered in a fixed random order; no rule was chosen by those from 400 on.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from sklearn.datasets import load_digits
from torch import Tensor

import exhume
from exhume.activations import activation
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Knowledge, Observation
from exhume.observing.two_versions import between_versions

RECORDS, FEATURES = 1000, 4096
PENALTIES = (1.0, 10.0, 100.0)
STARTS, EXPLAINED = 3, 0.5
TARGET = 0.99


@dataclass(frozen=True)
class Line:
    penalty: float
    record: int
    chosen: float
    """The penalty as the attack chose it."""
    cosine: float
    starts: int
    seconds: float


def fit(values: Tensor, labels: Tensor, penalty: float) -> Tensor:
    targets = torch.nn.functional.one_hot(labels, 10).double()
    kernel = values @ values.T + penalty * torch.eye(len(values), dtype=torch.float64)
    return (values.T @ torch.linalg.solve(kernel, targets)).T.contiguous()


def recovered(seen: Observation) -> tuple[Tensor, int]:
    """From another start where most of the change is left unexplained, as an audit does."""
    tried = []
    for seed in range(STARTS):
        tried.append(exhume.reconstruct(seen, method="module-newton", samples=1, seed=seed))
        if tried[-1].loss < EXPLAINED:
            break
    return min(tried, key=lambda found: found.loss).candidates.double(), len(tried)


def measure(first: int, records: int) -> Iterator[Line]:
    pixels, classes = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    rows, labels = torch.from_numpy(pixels / 16)[order], torch.from_numpy(classes)[order]
    dice = torch.Generator().manual_seed(1)
    drawn = torch.randn(FEATURES, 64, generator=dice, dtype=torch.float64) / 8
    features = RidgeFeatures(HeldRows(drawn), activation("relu"))
    own, public = slice(0, RECORDS), slice(RECORDS, None)
    values = features(rows[own])
    for penalty in PENALTIES:
        old = fit(values, labels[own], penalty)
        for record in range(first, first + records):
            kept = torch.arange(RECORDS) != record
            new = fit(values[kept], labels[own][kept], penalty)
            began = time.monotonic()
            found = between_versions(features, old, new, rows[public])
            seen = Observation(found.features, found.weights, Knowledge())
            back, starts = recovered(seen)
            cosine = float(torch.nn.functional.cosine_similarity(back, rows[record : record + 1])[0])
            yield Line(penalty, record, found.penalty * RECORDS, cosine, starts, time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=400)
    parser.add_argument("--records", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = []
    print("| penalty | record | chosen | cosine | starts | s |")
    for line in measure(options.first, options.records):
        lines.append(line)
        cells = f"{line.penalty:g} | {line.record} | {line.chosen:.2g} | {line.cosine:.4f} | {line.starts}"
        print(f"| {cells} | {line.seconds:.1f} |", flush=True)
    for penalty in PENALTIES:
        cosines = [line.cosine for line in lines if line.penalty == penalty]
        enough = sum(cosine > TARGET for cosine in cosines)
        print(f"penalty {penalty:g}: median {statistics.median(cosines):.4f}, {enough} of {len(cosines)} over {TARGET}")
    if options.json:
        print(json.dumps([asdict(line) for line in lines]))


if __name__ == "__main__":
    main()
