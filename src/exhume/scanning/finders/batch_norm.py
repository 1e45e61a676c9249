"""Batch norm counts its batches: after one, its statistics are those of that batch."""

from collections.abc import Iterator

import numpy as np

from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

COUNTER = "num_batches_tracked"
FEW = 10
"""With torch's momentum of 0.1 the start still weighs 0.9^10 = 35 % after ten batches, and each batch is told apart."""


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        counts: dict[int, list[str]] = {}
        for name, array in contents.arrays.items():
            if name.rpartition(".")[2] == COUNTER and array.numbers == 1:
                count = int(np.asarray(array.read()).ravel()[0])
                if 1 <= count <= FEW:
                    counts.setdefault(count, []).append(name.rpartition(".")[0])
        for count, layers in sorted(counts.items()):
            yield Finding(
                rule="batch-norm-of-one-batch",
                holds=Holds.LEAD,
                certainty=Certainty.CERTAIN if count == 1 else Certainty.LIKELY,
                what=f"batch norm of {count} batch{'es' if count > 1 else ''} in {len(layers)} layers",
                where=f"{file.name}: {layers[0]}",
                gives_away="mean and variance of every channel over one batch"
                if count == 1
                else f"mean and variance of every channel over {count} batches, mixed with known weights",
                remedy="fold batch norm into the layers, or take statistics over the whole training set",
                attack="none in exhume: a constraint on the sum of one batch, which other attacks can use",
            )
