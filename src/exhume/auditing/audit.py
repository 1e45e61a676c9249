"""An audit: what it may use, what it is asked, and what it found."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from exhume.attacks.running.budget import Limits
from exhume.attacks.running.settings import AttackSettings
from exhume.auditing.records import Control
from exhume.auditing.target import AuditTarget
from exhume.experiments.truth import Truth
from exhume.files import SCHEMA
from exhume.report.content import describe, gauge_section
from exhume.report.evidence import Evidence
from exhume.report.page import write_page
from exhume.report.recipes import check_recipes
from exhume.report.subject import Artefact, Subject
from exhume.report.tables import compared, exact_rates
from exhume.requests.audit import AuditOptions
from exhume.shown import Shown
from exhume.verdicts import Verdict


@dataclass(frozen=True)
class AuditSettings:
    """What an audit is asked for, and where and since when it works."""

    options: AuditOptions = field(default_factory=AuditOptions)
    device: torch.device | str = "cpu"
    since: float | None = None
    """The moment of `time.monotonic` from which the time counts; None: when the audit begins."""

    def __post_init__(self) -> None:
        check_recipes(self.options.recipes)

    @property
    def of_attacks(self) -> AttackSettings:
        """What all attacks of the audit have in common."""
        return AttackSettings(limits=Limits(memory_bytes=self.options.memory), device=self.device)


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Shown):
    """What was found. `save` writes the page; nothing of the recovered data leaves memory before."""

    subject: Subject
    evidence: Evidence
    said: dict[str, str]
    interrupted: bool = False

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.said["verdict"])

    @property
    def sentence(self) -> str:
        return self.said["sentence"]

    @property
    def summary(self) -> dict[str, Any]:
        """What other programs may rely on."""
        found, gauge = self.subject.found, gauge_section(self.subject, self.evidence)
        results = {line["key"]: line for line in self.evidence.results}
        error = results.get("error", {})
        return {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "confidence": self.said["confidence"],
            **{key: gauge[key] for key in ("p", "d", "n", "ratio", "zone")},
            "records": len(self.evidence.rows) if self.evidence.recovered is not None else None,
            "recovered": self.evidence.recovered,
            "control": self.evidence.control,
            "error": error.get("value"),
            "chance_error": error.get("chance"),
            **{
                key: results[key]["value"] if key in results else None
                for key in ("median_relative_error", "worst_relative_error")
            },
            "directions_only": self.evidence.directions_only,
            "directions": self.evidence.directions,
            **self._exact_cells(),
            "rank": None,
            "layer": None,
            **({} if found is None else found.summary()),
            "stronger": self.subject.stronger,
            "what_if": self.subject.what_if,
        }

    def _exact_cells(self) -> dict[str, Any]:
        """Of a table: the share of records, and of the cells of each column, that came back exactly."""
        lines = compared(self.subject, self.evidence)
        return exact_rates(self.subject, lines) if lines else {}

    def _lines(self) -> dict[str, str | int | float | None]:
        found, recovered = self.subject.found, self.evidence.recovered
        shown: dict[str, str | int | float | None] = {"verdict": self.verdict.value, "model": self.subject.name}
        if recovered is not None:
            shown["recovered"] = f"{recovered:,} of {len(self.evidence.rows):,} records"
        if found is None:
            return shown
        lines = found._lines()
        return shown | {
            name: lines[name] for name in ("outcome", "candidates", "loss", "held_out_loss", "method", "seconds")
        }

    def _remark(self) -> str:
        return f"{self.sentence} {self.said['confidence']}"

    def content(self, reveal: bool = False) -> dict[str, Any]:
        """What the page is made of. Without `reveal` pictures are blurred before they are stored."""
        return describe(self.subject, self.evidence, reveal)

    def save(self, path: str | Path, reveal: bool = False) -> Path:
        """Writes the page, and the JSON that it is made of beside it."""
        page = Path(path)
        write_page(self.content(reveal), page)
        return page


@dataclass(frozen=True, eq=False)
class Question:
    """A target with everything that is known about it."""

    target: AuditTarget
    artefact: Artefact
    name: str
    truth: Truth | None = None
    control: Control | None = None
    commands: list[str] = field(default_factory=list)
