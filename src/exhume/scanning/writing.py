"""What a scan leaves behind, where it is asked for: the stored records as a table, the findings as SARIF."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from exhume.files import table_for_the_owner, write_json
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.scan import Scan
from exhume.version import VERSION

_LEVELS = {Holds.RECORDS: "error", Holds.VALUES: "warning", Holds.LEAD: "note"}
BEFORE = ("where", "place", "training_row", "label")
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def write_rows(findings: Iterable[Finding], path: Path) -> int:
    """One line a record: where it lies, its place there, its number in the training set and its label if these are
    told, its values under the names of the columns if all records have the same."""
    kept = [finding for finding in findings if finding.rows is not None]
    widest = max((finding.rows.columns for finding in kept if finding.rows is not None), default=0)
    count = 0
    with table_for_the_owner(path) as table:
        table.writerow([*BEFORE, *_names(kept, widest)])
        for finding in kept:
            assert finding.rows is not None
            numbers = finding.rows.numbers
            labels = [] if finding.rows.labels is None else finding.rows.labels()
            for place, row in enumerate(np.asarray(finding.rows.read())):
                label = labels[place] if place < len(labels) else ""
                table.writerow([finding.where, place, "" if numbers is None else numbers[place], label, *row.tolist()])
                count += 1
    return count


def _names(kept: Iterable[Finding], widest: int) -> tuple[str, ...]:
    told = {finding.rows.names for finding in kept if finding.rows is not None}
    names = told.pop() if len(told) == 1 else None
    if names is None or set(names) & set(BEFORE):
        return tuple(f"x{number}" for number in range(widest))
    return names


def write_sarif(done: Scan, path: Path) -> None:
    rules = {finding.rule: finding for finding in done.findings}
    content = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "exhume scan",
                        "version": VERSION,
                        "rules": [
                            {"id": rule, "help": {"text": found.remedy}, "shortDescription": {"text": found.gives_away}}
                            for rule, found in sorted(rules.items())
                        ],
                    }
                },
                "results": [_result(finding) for finding in done.findings],
            }
        ],
    }
    write_json(path, content)


def _result(finding: Finding) -> dict[str, Any]:
    file = finding.where.partition(": ")[0].partition(" and ")[0].partition(", ")[0]
    level = _LEVELS[finding.holds] if finding.certainty is not Certainty.POSSIBLE else "note"
    return {
        "ruleId": finding.rule,
        "level": level,
        "message": {"text": f"{finding.what} at {finding.where}: {finding.gives_away}. Remedy: {finding.remedy}."},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": file}}}],
        "properties": {"certainty": finding.certainty.value, "attack": finding.attack},
    }
