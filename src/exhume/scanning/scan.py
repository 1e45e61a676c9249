"""A scan: stock is taken, every finder looks, and one sentence says what it comes to."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, Unread, take_stock
from exhume.scanning.registry import FINDERS, READ_NUMBERS, Finder
from exhume.shown import Shown


class Answer(Enum):
    """Is training data in here? From the worst down. `UNKNOWN`: nothing was found, and not everything was read."""

    YES = "yes"
    LEADS = "leads"
    UNKNOWN = "unknown"
    NO = "no"


@dataclass(frozen=True, eq=False, repr=False)
class Scan(Shown):
    inventory: Inventory
    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...]

    @property
    def answer(self) -> Answer:
        if any(
            finding.holds is not Holds.LEAD and finding.certainty is not Certainty.POSSIBLE for finding in self.findings
        ):
            return Answer.YES
        if self.findings:
            return Answer.LEADS
        return Answer.UNKNOWN if self.unread else Answer.NO

    @property
    def missing_extras(self) -> tuple[str, ...]:
        """What to install so that more can be read."""
        return tuple(sorted({item.extra for item in self.unread if item.extra is not None}))

    @property
    def sentence(self) -> str:
        """Answers the question, and says what the answer rests on."""
        not_read = f" {_count(len(self.unread), 'file')} could not be read." if self.unread else ""
        match self.answer:
            case Answer.YES:
                found = [
                    f for f in self.findings if f.holds is not Holds.LEAD and f.certainty is not Certainty.POSSIBLE
                ]
                sure = "yes" if any(f.certainty is Certainty.CERTAIN for f in found) else "very likely"
                kind = "" if any(f.holds is Holds.RECORDS for f in found) else ", single values of it"
                return f"Is training data in here? {sure.capitalize()}{kind}: {found[0].what}.{not_read}"
            case Answer.LEADS:
                return (
                    "Is training data in here? Not as such, but "
                    f"{_count(len(self.findings), 'lead')} to it: {self.findings[0].what}.{not_read}"
                )
            case Answer.UNKNOWN:
                return f"Is training data in here? Not known: nothing was found in what could be read.{not_read}"
        return (
            "Is training data in here? No: nothing that a scan knows of was found. Weights may still give it away; "
            "exhume audit tries."
        )

    def _lines(self) -> dict[str, str | int | float | None]:
        counts = {"findings": len(self.findings), "unread": len(self.unread), "files": len(self.inventory.files)}
        return {"answer": self.answer.value, **counts}

    def _remark(self) -> str:
        return self.sentence

    def to_json(self) -> dict[str, Any]:
        return {
            "answer": self.answer.value,
            "sentence": self.sentence,
            "findings": [finding.to_json() for finding in self.findings],
            "unread": [{"where": item.name, "reason": item.reason, "extra": item.extra} for item in self.unread],
            "files": len(self.inventory.files),
            "bytes": self.inventory.size,
            "rules": dict(Counter(finding.rule for finding in self.findings)),
        }


def scan(root: Path, numbers: bool = True) -> Scan:
    """Looks at a file or folder. A finder that stumbles over one file costs a line.

    Without `numbers` the numbers of large tensors are left alone: for a file of which they have not arrived.
    """
    inventory = take_stock(root)
    findings: list[Finding] = []
    unread = list(inventory.unread)
    for find in FINDERS if numbers else [find for find in FINDERS if find not in READ_NUMBERS]:
        found, failed = _looked(find, inventory)
        findings += found
        unread += failed
    findings.sort(key=lambda finding: (finding.severity, finding.where))
    return Scan(inventory, tuple(findings), tuple(dict.fromkeys(unread)))


def _looked(find: Finder, inventory: Inventory) -> tuple[list[Finding], list[Unread]]:
    """What a finder finds in all files together; where one of them stops it, in each by itself."""
    try:
        return _parted(find(inventory))
    except ExhumeError:
        found: list[Finding] = []
        failed: list[Unread] = []
        for file in inventory.files:
            try:
                some, unread = _parted(find(replace(inventory, files=(file,))))
                found += some
                failed += unread
            except ExhumeError as problem:
                failed.append(Unread.of(file.name, problem, inventory.root))
        return found, failed


def _parted(told: Iterable[Finding | Unread]) -> tuple[list[Finding], list[Unread]]:
    found: list[Finding] = []
    failed: list[Unread] = []
    for item in told:
        if isinstance(item, Finding):
            found.append(item)
        else:
            failed.append(item)
    return found, failed


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
