"""What silent units gave away: which layer, of what rank, and which samples."""

from itertools import groupby
from typing import Any

from exhume.attacks.silent.attack import SilentUnits
from exhume.layer_states import SOURCES
from exhume.report.evidence import Evidence
from exhume.report.subject import Subject


def silent_section(subject: Subject, evidence: Evidence) -> dict[str, Any] | None:
    """One line per attack on a layer; None where none was made. Samples are those of the attack that counts."""
    lines = [line for line in subject.attempts if line["method"] == SilentUnits.name and line["outcome"] is not None]
    if not lines:
        return None
    return {
        "attempts": [
            {
                "layer": line["layers"][0],
                "state": SOURCES.get(line["state"], line["state"]),
                "rank": line["rank"],
                "found": line["candidates"],
                "confirmed": line["trusted"],
            }
            for line in lines
        ],
        "samples": _samples(subject, evidence),
    }


def _samples(subject: Subject, evidence: Evidence) -> dict[str, str | None] | None:
    """Numbers of the records that came back and of those that did not, where records were given."""
    found = subject.found
    if found is None or found.method != SilentUnits.name or evidence.recovered is None:
        return None
    came = sorted(row["sample"] for row in evidence.rows if row["recovered"])
    others = sorted(row["sample"] for row in evidence.rows if not row["recovered"])
    return {"recovered": ranges(came), "others": ranges(others)}


def ranges(numbers: list[int]) -> str | None:
    """
    >>> ranges([0, 1, 2, 5, 7, 8]), ranges([])
    ('0 to 2, 5, 7, 8', None)
    """
    parts: list[str] = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(parts) or None
