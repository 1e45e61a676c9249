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
PLACES = re.compile(r"position|wpe|token_type|segment")
"""Tables whose rows are places in a text, and not words."""
MOST_BYTES = 512 * 2**20
"""Of all tables that are compared, eight for each number: more would take longer than a scan may."""
BLOCK = 4096
EXACT = {"F32", "F64", "float32", "float64"}
"""In half precision shrinking is lost in rounding."""
FEWEST_ALIKE = 10
"""Rows that shrank by one factor: fewer may do so by chance."""
ROUNDINGS = 100.0
"""Units in the last place: the root of 10,000 steps of training, each of which rounds."""


def find(inventory: Inventory) -> Iterator[Finding]:
    tables: dict[tuple[str, tuple[int, ...]], tuple[str, StoredArray]] = {}
    left = MOST_BYTES
    for file, contents in inventory.models:
        for name, array in contents.arrays.items():
            if contents.kind == "skops" or "lora_" in name or name.rpartition(".")[2] in BUFFERS:
                continue  # coordinates of records, a factor of an adapter, or what an optimiser keeps
            if len(array.shape) != 2 or array.shape[0] < array.shape[1] or not _is_of_words(name.lower()):
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


def _is_of_words(name: str) -> bool:
    return NAMED.search(name) is not None and PLACES.search(name) is None


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
    """Decoupled weight decay shrinks the rows of all words alike; the others have moved by themselves."""
    rows = first[1].shape[0]
    one, other = first[1].read(), second[1].read()
    exact = {first[1].dtype, second[1].dtype} <= EXACT
    shrinking = _shrinking(one, other) if exact else None
    differ, moved = 0, 0
    for start in range(0, rows, BLOCK):
        before, after = one[start : start + BLOCK], other[start : start + BLOCK]
        differ += int(np.any(before != after, axis=1).sum())
        if shrinking is not None:
            expected = before.astype(np.float64) * shrinking
            far = np.abs(after - expected).max(axis=1) > _rounding(one) * np.abs(expected).max(axis=1)
            moved += int(far.sum())
    decay = shrinking is not None and moved < differ
    count = moved if decay else differ
    if 0 < count < rows:
        yield Finding(
            rule="embedding-rows",
            holds=Holds.VALUES,
            certainty=Certainty.LIKELY,
            what=f"{count:,} of {rows:,} rows of an embedding table "
            + ("moved between two states, and all others shrank alike" if decay else "differ between two states"),
            where=f"{first[0]}: {first[1].name} and {second[0]}: {second[1].name}",
            gives_away="which words or users occurred in the training between the two states, and which did not",
            remedy="publish one state, or keep the table frozen",
            attack="none is needed: the numbers of the rows that "
            + ("did not shrink alike are the words" if decay else "differ are the words"),
        )


def _shrinking(before: np.ndarray, after: np.ndarray) -> float | None:
    """The factor by which weight decay shrank rows that nothing else moved, if two or more have it.

    A row's own factor is that of its largest number: rounding hardly touches it.
    """
    places = np.argmax(np.abs(before), axis=1)[:, None]
    largest, now = (np.take_along_axis(part, places, axis=1)[:, 0].astype(np.float64) for part in (before, after))
    used = largest != 0
    factors = np.sort(now[used] / largest[used])
    factors = factors[(factors > 0) & (factors < 1)]
    if len(factors) < FEWEST_ALIKE:
        return None
    reach = np.searchsorted(factors, factors * (1 + _rounding(before)), side="right") - np.arange(len(factors))
    at = int(np.argmax(reach))
    return float(np.median(factors[at : at + reach[at]])) if reach[at] >= FEWEST_ALIKE else None


def _rounding(table: np.ndarray) -> float:
    return ROUNDINGS * float(np.finfo(table.dtype).eps)
