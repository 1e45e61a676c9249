"""A row of the zoo: one victim of one seed, trained, measured and audited twice, kept as one line of JSON."""

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from zoo.auditing import Result, audited
from zoo.facts import Facts, facts_of
from zoo.scoring import Score
from zoo.sentences import false_sentences
from zoo.victim import Trained, Victim


@dataclass(frozen=True)
class Row:
    victim: str
    seed: int
    what: str
    knows: str
    n: int
    budget: float
    training_seconds: float
    training_loss: float
    facts: Facts
    with_records: Result | None = None
    without_records: Result | None = None
    false: list[dict[str, str]] = field(default_factory=list)
    """Sentences that do not agree with the truth, as far as a program can tell."""

    def judged(self) -> "Row":
        """The same row, its sentences held against its facts by the rules of today."""
        if self.with_records is None or self.without_records is None:
            return self
        return replace(self, false=false_sentences(self.with_records, self.without_records, self.facts))


def measured(victim: Victim, seed: int, data: Path) -> tuple[Trained, Row]:
    """Trained, with its facts; not audited."""
    began = time.monotonic()
    trained = victim.train(seed, data)
    seconds = round(time.monotonic() - began, 1)
    facts = facts_of(trained)
    n = len(trained.records)
    return trained, Row(victim.name, seed, victim.what, victim.knows, n, 0.0, seconds, trained.loss, facts)


def made(victim: Victim, seed: int, budget: float, data: Path) -> Row:
    trained, row = measured(victim, seed, data)
    informed = audited(trained, budget, seed, with_records=True)
    blind = audited(trained, budget, seed, with_records=False)
    return replace(row, budget=budget, with_records=informed, without_records=blind).judged()


def path_of(folder: Path, victim: str, seed: int) -> Path:
    return folder / f"{victim}.{seed}.json"


def save(row: Row, folder: Path) -> None:
    """Whole or absent: a row that is there is not made again."""
    place = path_of(folder, row.victim, row.seed)
    draft = place.with_suffix(".draft")
    draft.write_text(line_of(row), encoding="utf-8")
    draft.replace(place)


def line_of(row: Row) -> str:
    return json.dumps(asdict(row)) + "\n"


def load(path: Path) -> Row:
    told = json.loads(path.read_text(encoding="utf-8"))
    results = {name: _result(told[name]) for name in ("with_records", "without_records")}
    return Row(**{**told, "facts": Facts(**told["facts"]), **results}).judged()


def _result(told: dict[str, Any] | None) -> Result | None:
    if told is None:
        return None
    return Result(**{**told, "score": None if told["score"] is None else Score(**told["score"])})
