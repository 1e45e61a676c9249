"""Embedding tables: the row of a word moves only if the word occurs. Two states of a table tell which words did."""

import re
from collections.abc import Iterator

import numpy as np

from exhume.checkpoint_names import own_name
from exhume.formats.contents import StoredArray
from exhume.scanning.finders.optimiser_states import BUFFERS
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

NAMED = re.compile(r"(^|[./_])(wte|tok_embeddings|embed\w*|shared)([./_]|$)")
MOST_BYTES = 512 * 2**20
"""Of all tables that are compared, eight for each number: more would take longer than a scan may."""
BLOCK = 4096


def find(inventory: Inventory) -> Iterator[Finding]:
    tables: dict[tuple[str, tuple[int, ...]], tuple[str, StoredArray]] = {}
    left = MOST_BYTES
    for file, contents in inventory.models:
        for name, array in contents.arrays.items():
            if contents.kind == "skops" or "lora_" in name or name.rpartition(".")[2] in BUFFERS:
                continue  # coordinates of records, a factor of an adapter, or what an optimiser keeps
            if len(array.shape) != 2 or array.shape[0] < array.shape[1] or not NAMED.search(name.lower()):
                continue
            before = tables.setdefault((own_name(name), array.shape), (file.name, array))
            if before[1] is array:
                yield _one(file.name, name, array)
                continue
            left -= 16 * array.numbers
            if left >= 0:
                yield from _two(before, (file.name, array))
            else:
                yield _not_compared(before, (file.name, array))


def _one(where: str, name: str, array: StoredArray) -> Finding:
    return Finding(
        rule="embedding-table",
        holds=Holds.LEAD,
        certainty=Certainty.POSSIBLE,
        what=f"an embedding table of {array.shape[0]:,} rows",
        where=f"{where}: {name}",
        gives_away="held against the table before training: which words or users occurred in it",
        remedy="keep the table frozen, or publish no earlier state of it",
        attack="compare rows with the public model that training began with: rows that moved are words that occurred",
    )


def _not_compared(first: tuple[str, StoredArray], second: tuple[str, StoredArray]) -> Finding:
    return Finding(
        rule="embedding-rows",
        holds=Holds.LEAD,
        certainty=Certainty.POSSIBLE,
        what=f"two states of an embedding table of {first[1].shape[0]:,} rows, too large for a scan: not compared",
        where=f"{first[0]}: {first[1].name} and {second[0]}: {second[1].name}",
        gives_away="which words or users occurred in the training between the two states, where single rows differ",
        remedy="publish one state",
        attack="compare their rows: the numbers of the rows that differ are the words",
    )


def _two(first: tuple[str, StoredArray], second: tuple[str, StoredArray]) -> Iterator[Finding]:
    rows = first[1].shape[0]
    one, other = first[1].read(), second[1].read()
    changed = sum(
        int(np.any(one[start : start + BLOCK] != other[start : start + BLOCK], axis=1).sum())
        for start in range(0, rows, BLOCK)
    )
    if 0 < changed < rows:
        yield Finding(
            rule="embedding-rows",
            holds=Holds.VALUES,
            certainty=Certainty.LIKELY,
            what=f"{changed:,} of {rows:,} rows of an embedding table differ between two states",
            where=f"{first[0]}: {first[1].name} and {second[0]}: {second[1].name}",
            gives_away="which words or users occurred in the training between the two states, and which did not",
            remedy="publish one state, or train without weight decay on a frozen table",
            attack="none is needed: the numbers of the rows that differ are the words",
        )
