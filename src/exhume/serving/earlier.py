"""Audits that are done: folders with a summary below the one that the server writes to, of this session or before."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.files import read_json
from exhume.verdicts import Verdict

SUMMARY = "summary.json"
REPORT = "report.html"
LARGEST_SUMMARY = 4 * 2**20
MOST_LISTED = 200
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
"""What a folder that the server made is called: nothing else is opened, whatever an address asks for."""

ROWS = (
    ("verdict", "Verdict"),
    ("recovered", "Records recovered"),
    ("records", "Records compared"),
    ("samples_found", "Candidates found"),
    ("median_relative_error", "Median relative error"),
    ("worst_relative_error", "Worst relative error"),
    ("held_out_loss", "Left unexplained of held-out weights"),
    ("method", "Attack"),
    ("layer", "Layer"),
    ("p", "p, weights attacked"),
    ("d", "d, numbers per record"),
    ("n", "n, records"),
    ("seconds", "Seconds"),
)
"""What a comparison shows of each audit, by its key in the summary."""


@dataclass(frozen=True)
class EarlierAudit:
    key: str
    finished: datetime
    summary: dict[str, Any]

    @property
    def verdict(self) -> Verdict | None:
        known = {verdict.value: verdict for verdict in Verdict}
        return known.get(str(self.summary.get("verdict")))

    @property
    def sentence(self) -> str:
        return str(self.summary.get("sentence") or "")

    @property
    def defences(self) -> list[dict[str, Any]]:
        """The lines of --what-if, the model as it is among them."""
        lines = self.summary.get("what_if")
        return [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []


def read_audit(out: Path, key: str) -> EarlierAudit:
    """One audit by the name of its folder."""
    path = folder_of(out, key) / SUMMARY
    try:
        told = path.stat()
        if told.st_size > LARGEST_SUMMARY:
            raise ExhumeError(f"expected a summary of at most {LARGEST_SUMMARY:,} bytes in {key}, found more")
    except OSError as problem:
        raise ExhumeError(f"expected an audit named {key}, found none") from problem
    return EarlierAudit(key, datetime.fromtimestamp(told.st_mtime), read_json(path))


def folder_of(out: Path, key: str) -> Path:
    """The folder of an audit: directly below `out`, and no link to anywhere else."""
    folder = out / key
    if NAME.fullmatch(key) is None or folder.is_symlink():
        raise ExhumeError("expected the name of an audit, found something else")
    return folder


def list_audits(out: Path) -> list[EarlierAudit]:
    """The latest first. A folder that is no audit, or a damaged one, is passed over."""
    found = []
    for path in out.glob(f"*/{SUMMARY}"):
        try:
            found.append(read_audit(out, path.parent.name))
        except ExhumeError:
            continue
    return sorted(found, key=lambda audit: audit.finished, reverse=True)[:MOST_LISTED]


def compare(audits: Sequence[EarlierAudit]) -> list[dict[str, Any]]:
    """One line per quantity: its name, the value of each audit, and whether they differ. Quantities that none has are
    left out."""
    lines = []
    for key, name in ROWS:
        values = [audit.summary.get(key) for audit in audits]
        if any(value is not None for value in values):
            lines.append({"name": name, "values": values, "differs": len({repr(value) for value in values}) > 1})
    return lines
