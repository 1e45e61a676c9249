"""The page shows what the parts wrote, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Part = Callable[[str], Any]
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
FAULT = {
    "name": "disk full: train",
    "exit_code": 1,
    "said": "exhume: no space in /tmp/a/b",
    "skipped": "",
    "faults": [],
}


def written(part: Part, folder: Path) -> None:
    """Made by the parts' own functions, so that a change of theirs is seen here."""
    kills, faults, memory = part("kills"), part("faults"), part("memory")
    tally = kills.Tally("train", kills=3, at_files=1, faults=["x differs"])
    about = {"seed": 7, "day": "2026-01-02", "version": "0.1", "commit": "abc", "cores": 2}
    (folder / "kills.json").write_text(json.dumps({**kills.summary([tally], 61.0), **about}))
    (folder / "run.json").write_text(json.dumps({**about, "seconds": 90.0}))
    broken = FAULT | {"name": "killed", "said": "exhume: traceback in /tmp/c", "faults": ["a traceback"]}
    cases = [faults.Case(**FAULT), faults.Case(**broken), faults.Case("read-only: attack", skipped="no root")]
    (folder / "faults.json").write_text(json.dumps(faults.summary(cases, 9.0)))
    fits = memory.Measured("p = 9", 90, "heavy-ball", True, 1024.0, 1126.0, 0, "")
    refusal = memory.Refusal("p = 9", "heavy-ball", 2, "exhume: give --memory 500M", 3.0, fits)
    (folder / "memory.json").write_text(json.dumps(memory.summary([fits], [refusal], 30.0)))


def test_every_part_has_a_line_and_those_that_did_not_run_say_so(part: Part, tmp_path: Path) -> None:
    written(part, tmp_path)
    text = part("document").tables(tmp_path)
    assert "| kills | 3 kills, 0 runs resumed | 1 | 7 | 2026-01-02, 0.1 (abc) |" in text
    assert "| faults | 2 faults, 1 left out | 1 |  |  |" in text
    assert "| memory | 1 attacks, 1 budgets too small | 0 |  |  |" in text
    assert "| fuzz | not run | | | |" in text
    assert "| disk full: train | 1 | 0 |" in text
    assert "exhume: no space" not in text, "what was said is told where a promise was broken"
    assert "- killed: exhume: traceback in c\n" in text, "no places of the machine"
    assert "| read-only: attack | left out | 0 |" in text
    assert "- read-only: attack: no root\n" in text
    assert "seed 7, 2026-01-02 (UTC), exhume 0.1 (abc), 2 cores, 1.5 minutes in all" in text
    assert "| 1024 | 1126 | 110% |" in text


def test_a_peak_above_the_budget_and_a_refusal_that_did_not_come_are_faults(part: Part) -> None:
    memory = part("memory")
    over = memory.Measured("p = 9", 90, "heavy-ball", True, 1024.0, 1127.0, 0, "")
    failed = memory.Measured("p = 9", 90, "heavy-ball", True, 1024.0, 500.0, 1, "no")
    taken = memory.Refusal("p = 9", "heavy-ball", 0, "", 3.0, None)
    assert len(memory.summary([over, failed], [taken], 1.0)["faults"]) == 3


def test_only_what_is_between_the_marks_changes(part: Part) -> None:
    document, text = part("document"), PAGE.read_text(encoding="utf-8")
    renewed = document.with_figures(text, "| new |\n")
    before, after = text.split(document.BEGIN)[0], text.split(document.END)[1]
    assert renewed == f"{before}{document.BEGIN}\n| new |\n{document.END}{after}"
    assert document.with_figures(renewed, "| new |\n") == renewed
    with pytest.raises(ValueError, match="marks"):
        document.with_figures("no marks", "")
