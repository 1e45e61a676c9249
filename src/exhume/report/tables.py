"""Recovered records as the table that they came from: the owner's columns and units, held against the true cells."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from exhume.data.tables.table import Cell, shown
from exhume.files import table_for_the_owner
from exhume.report.evidence import Evidence
from exhume.report.subject import Subject

MOST_RECORDS = 50
MOST_COLUMNS = 60
HIDDEN = "▒▒▒"
"""What stands for a cell that is not revealed: it is not stored."""


@dataclass(frozen=True)
class Compared:
    """A record, what was recovered of it, and which cells are exactly equal; None where it has no candidate."""

    sample: int
    true: tuple[Cell, ...]
    found: tuple[Cell, ...] | None
    exact: tuple[bool, ...]


def compared(subject: Subject, evidence: Evidence) -> list[Compared] | None:
    """The records in the order of the evidence; None where they are no table, or where norms or signs cannot be known.

    A direction alone has no units, and a record with the better sign is more than the attack found.
    """
    truth, found = subject.truth, subject.found
    table = None if truth is None else truth.table
    if table is None or found is None or evidence.recovered is None:
        return None
    if evidence.directions_only or evidence.sign_free:
        return None
    if found.candidates.ndim != 2 or found.candidates.shape[1] != table.width:
        return None
    lines = []
    for row in evidence.rows:
        true, candidate = table.record(row["sample"]), row["candidate"]
        back = None if candidate is None else table.back(found.candidates[candidate])
        exact = tuple(
            back is not None and column.same(cell, back[at])
            for at, (column, cell) in enumerate(zip(table.columns, true, strict=True))
        )
        lines.append(Compared(row["sample"], true, back, exact))
    return lines


def exact_rates(subject: Subject, lines: list[Compared]) -> dict[str, Any]:
    """Of all records: the share of exactly equal cells per column, and of exactly equal records."""
    assert subject.truth is not None
    assert subject.truth.table is not None
    columns = subject.truth.table.columns
    return {
        "exact_rows": sum(all(line.exact) for line in lines) / len(lines),
        "exact_columns": {
            column.name: sum(line.exact[at] for line in lines) / len(lines) for at, column in enumerate(columns)
        },
    }


def table_section(subject: Subject, evidence: Evidence, reveal: bool) -> dict[str, Any] | None:
    """What the page shows; without `reveal` no cell is stored, only whether it is exact."""
    lines = compared(subject, evidence)
    if not lines:
        return None
    assert subject.truth is not None
    assert subject.truth.table is not None
    rates = exact_rates(subject, lines)
    columns = subject.truth.table.columns[:MOST_COLUMNS]

    def listed(cells: tuple[Cell, ...] | None) -> list[str] | None:
        if cells is None:
            return None
        return [shown(cell) if reveal else HIDDEN for cell in cells[:MOST_COLUMNS]]

    return {
        "columns": [
            {
                "name": column.name,
                "kind": "number" if column.categories is None else f"{len(column.categories)} categories",
                "exact": rates["exact_columns"][column.name],
                "off": _median_off(lines, at),
            }
            for at, column in enumerate(columns)
        ],
        "columns_left_off": len(subject.truth.table.columns) - len(columns),
        "exact_rows": rates["exact_rows"],
        "records": [
            {
                "sample": line.sample,
                "true": listed(line.true),
                "found": listed(line.found),
                "exact": list(line.exact[:MOST_COLUMNS]),
            }
            for line in lines[:MOST_RECORDS]
        ],
        "records_left_off": max(0, len(lines) - MOST_RECORDS),
    }


def _median_off(lines: list[Compared], at: int) -> float | None:
    """How far the cells of a column of numbers are from what came back, in its own units; None for categories."""
    apart = [
        abs(line.true[at] - line.found[at])  # type: ignore[operator]
        for line in lines
        if line.found is not None and not isinstance(line.true[at], str) and not isinstance(line.found[at], str)
    ]
    return float(median(apart)) if apart else None


def write_recovered(subject: Subject, evidence: Evidence, path: Path) -> None:
    """The recovered records as CSV, for nobody but the owner to read; nothing where there is no table."""
    lines = compared(subject, evidence)
    if not lines:
        return
    assert subject.truth is not None
    assert subject.truth.table is not None
    with table_for_the_owner(path) as table:
        table.writerow(["record", *(column.name for column in subject.truth.table.columns)])
        table.writerows([line.sample, *map(shown, line.found)] for line in lines if line.found is not None)
