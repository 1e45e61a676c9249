"""What an audit says of two versions of a model that stores records: the verdict, the page, and the rows."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from exhume.auditing.named_records import table_options
from exhume.auditing.records import read_records
from exhume.auditing.stored_versions import ChangedRow, StoredChange, equal_rows, stored_changes
from exhume.auditing.versions_page import about, write_versions
from exhume.errors import UsageError
from exhume.files import SCHEMA, table_for_the_owner
from exhume.report.tables import HIDDEN, MOST_COLUMNS, MOST_RECORDS
from exhume.requests.audit import AuditRequest
from exhume.verdicts import Verdict

REMEDY = "one on random features (RBFSampler), a linear one, or centroids of many records each"
CERTAIN = "Certain: the records are in the files as they are, and the versions differ in them."
NOTHING = "The stored records are the same. What else differs between the versions was not looked at."


@dataclass(frozen=True, eq=False)
class StoredAudit:
    """`truth`: how many of the given records are among those that changed; None where none were given."""

    request: AuditRequest
    changes: tuple[StoredChange, ...]
    truth: tuple[int, int] | None
    seconds: float

    @property
    def rows(self) -> list[ChangedRow]:
        return [row for change in self.changes for row in (*change.gone, *change.new)]

    @property
    def verdict(self) -> Verdict:
        return Verdict.RECOVERED if self.rows else Verdict.INCONCLUSIVE

    @property
    def sentence(self) -> str:
        if not self.rows:
            return "Inconclusive: both versions store the same records."
        gone, new = (sum(len(part) for part in side) for side in self._sides())
        parts = [f"{_count(gone)} of the older version {_are(gone)} not in the newer one"] if gone else []
        parts += [f"{_count(new)} of the newer version {_are(new)} not in the older one"] if new else []
        return f"Recovered: {', and '.join(parts)}. Each can be read as it is."

    @property
    def summary(self) -> dict[str, Any]:
        found, records = self.truth or (None, None)
        return {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "confidence": CERTAIN if self.rows else NOTHING,
            "recovered": found,
            "records": records,
            "control": None,
            "error": None,
            "median_relative_error": None,
            "worst_relative_error": None,
            "samples_found": len(self.rows),
            "rank": None,
            "layer": None,
            "method": "stored-records",
            "seconds": round(self.seconds, 3),
            "changes": [_listed(change) for change in self.changes],
        }

    def _sides(self) -> tuple[list[tuple[ChangedRow, ...]], list[tuple[ChangedRow, ...]]]:
        return [change.gone for change in self.changes], [change.new for change in self.changes]


def audit_stored(request: AuditRequest) -> StoredAudit | None:
    """None where the newer version stores no records: then it is audited as any other."""
    if request.against is None or request.model is not None or request.features is not None:
        return None
    if not (request.weights.is_file() and request.against.is_file()):
        return None
    began = time.monotonic()
    changes = stored_changes(request.weights, request.against)
    if not changes:
        return None
    request.check()
    if request.what_if is not None:
        raise UsageError(f"expected no --what-if with a model that stores records, found {request.what_if!r}")
    truth = _held_against(request, changes)
    return StoredAudit(request, changes, truth, time.monotonic() - began)


def write_stored(done: StoredAudit, reveal: bool) -> Path:
    content = _content(done, reveal)
    rows = partial(_write_rows, done.changes)
    return write_versions(done.request.out, "versions.html.jinja", content, done.summary, rows)


def _held_against(request: AuditRequest, changes: Sequence[StoredChange]) -> tuple[int, int] | None:
    if request.truth is None:
        return None
    records = read_records(Path(request.truth), None, table_options(request))
    rows = records.inputs.double().numpy()
    found = 0
    for change in changes:
        changed = np.array([row.values for row in (*change.gone, *change.new)])
        if len(changed) and changed.shape[1] == rows.shape[1]:
            found = max(found, len(equal_rows(rows.astype(np.float64), changed)))
    return found, len(rows)


def _listed(change: StoredChange) -> dict[str, Any]:
    return {
        "what": change.what,
        "where": change.where,
        "shared": change.shared,
        "reweighted": change.reweighted,
        **{
            side: [{"place": row.place, "training_row": row.number, "why": row.how} for row in rows]
            for side, rows in (("gone", change.gone), ("new", change.new))
        },
    }


def _content(done: StoredAudit, reveal: bool) -> dict[str, Any]:
    return about(done.request, done.verdict, reveal) | {
        "answer": "Yes." if done.rows else "Not known.",
        "sentence": done.sentence,
        "confidence": CERTAIN if done.rows else NOTHING,
        "changes": [_section(change, reveal) for change in done.changes],
        "remedy": REMEDY,
    }


def _section(change: StoredChange, reveal: bool) -> dict[str, Any]:
    width = max((len(row.values) for row in (*change.gone, *change.new)), default=0)

    def shown(rows: tuple[ChangedRow, ...]) -> list[dict[str, Any]]:
        return [
            {
                "place": row.place,
                "number": row.number,
                "how": row.how,
                "cells": [f"{cell:.6g}" if reveal else HIDDEN for cell in row.values[:MOST_COLUMNS]],
            }
            for row in rows[:MOST_RECORDS]
        ]

    return {
        "what": change.what,
        "where": change.where,
        "shared": change.shared,
        "reweighted": change.reweighted,
        "columns": [f"x{at}" for at in range(min(width, MOST_COLUMNS))],
        "parts": [
            [title, shown(rows), max(0, len(rows) - MOST_RECORDS)]
            for title, rows in (
                ("In the older version only", change.gone),
                ("In the newer version only", change.new),
            )
        ],
    }


def _write_rows(changes: Sequence[StoredChange], path: Path) -> None:
    with table_for_the_owner(path) as table:
        for change in changes:
            for side, rows in (("older", change.gone), ("newer", change.new)):
                for row in rows:
                    number = "" if row.number is None else row.number
                    table.writerow([change.where, side, row.place, number, *row.values.tolist()])


def _count(number: int) -> str:
    return f"{number:,} stored record{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
