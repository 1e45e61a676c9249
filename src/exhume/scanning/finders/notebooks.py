"""Notebooks keep what they printed: the first rows of a table, pictures of samples, paths."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from exhume.errors import ExhumeError
from exhume.formats.json_file import read_json_value
from exhume.private_paths import without_folders
from exhume.regular_file import regular
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, ScannedFile, Unread

_OUTPUT = re.compile(rb'"output_type"\s*:')
_PICTURE = re.compile(rb'"image/[a-z+.-]{1,20}"\s*:')
_TABLE = re.compile(rb"<table\b")
LONGEST_SIGN = 64
BLOCK = 2**20
MOST_SEARCHED = 2**30


@dataclass(frozen=True)
class Printed:
    outputs: int
    pictures: int
    tables: int


def find(inventory: Inventory) -> Iterator[Finding | Unread]:
    for file in inventory.files:
        if file.suffix != ".ipynb":
            continue
        try:
            printed = _count(read_json_value(file.path))
        except ExhumeError as problem:
            yield Unread(file.name, f"{without_folders(str(problem))}; its text alone was searched")
            printed = _searched(file)
        if printed.outputs or printed.pictures or printed.tables:
            yield _finding(file.name, printed)


def _finding(where: str, printed: Printed) -> Finding:
    seen = [f"{count} {what}" for count, what in ((printed.pictures, "pictures"), (printed.tables, "tables")) if count]
    return Finding(
        rule="notebook",
        holds=Holds.RECORDS if seen else Holds.LEAD,
        certainty=Certainty.LIKELY if printed.tables else Certainty.POSSIBLE,
        what=f"a notebook with {printed.outputs} outputs" + (f", {' and '.join(seen)} among them" if seen else ""),
        where=where,
        gives_away="what was printed while the model was made: rows of tables, pictures of samples, paths",
        remedy="clear its outputs: jupyter nbconvert --clear-output --inplace NOTEBOOK",
        attack="none is needed: open it",
    )


def _count(told: Any) -> Printed:
    """Outputs, pictures among them, and tables as pandas shows them."""
    cells = told.get("cells") if isinstance(told, dict) else None
    outputs = pictures = tables = 0
    for cell in cells if isinstance(cells, list) else []:
        printed = cell.get("outputs") if isinstance(cell, dict) else None
        for output in printed if isinstance(printed, list) else []:
            data = output.get("data") if isinstance(output, dict) else None
            kinds = list(data) if isinstance(data, dict) else []
            outputs += 1
            pictures += any(str(kind).startswith("image/") for kind in kinds)
            tables += "text/html" in kinds and "<table" in str(data["text/html"] if isinstance(data, dict) else "")
    return Printed(outputs, pictures, tables)


def _searched(file: ScannedFile) -> Printed:
    """The signs of outputs in a notebook that is too large or too deep for a reader of JSON, block by block."""
    signs = (_OUTPUT, _PICTURE, _TABLE)
    counts = [0, 0, 0]
    before = b""
    try:
        with regular(file.path).open("rb") as opened:
            while opened.tell() < MOST_SEARCHED and (block := opened.read(BLOCK)):
                text = before + block
                before = text[-LONGEST_SIGN:]
                for at, sign in enumerate(signs):
                    counts[at] += sum(found.end() > len(text) - len(block) for found in sign.finditer(text))
    except OSError:
        return Printed(0, 0, 0)  # which the reader has told
    return Printed(max(counts), counts[1], counts[2])
