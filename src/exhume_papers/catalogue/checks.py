"""All checks of the theory, run and written. Each is kept as soon as it is done, and is not made again."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from exhume.files import SCHEMA, read_json, write_json, write_text
from exhume.version import VERSION
from exhume_papers.catalogue.figure import Scale
from exhume_papers.catalogue.lemma_b4 import powers_of_cosines
from exhume_papers.catalogue.outliers import outlier_first
from exhume_papers.catalogue.same_point import same_point
from exhume_papers.catalogue.second_paper_checks import subspace_angles, width_at_risk
from exhume_papers.catalogue.splitting import sample_split
from exhume_papers.catalogue.theorems import other_solutions, signs_turned, spans_matched
from exhume_papers.catalogue.theory import Check, no_duplicates, smallest_eigenvalue, uniform_concentration
from exhume_papers.figures.law_figures import LawPanel, draw_laws
from exhume_papers.sweeps.results import as_csv

CHECKS: tuple[Callable[[Scale], Check], ...] = (
    spans_matched,
    no_duplicates,
    signs_turned,
    other_solutions,
    sample_split,
    powers_of_cosines,
    uniform_concentration,
    smallest_eigenvalue,
    outlier_first,
    same_point,
    width_at_risk,
    subspace_angles,
)
NAME = "theory"


def write_checks(scale: Scale, out: Path, command: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs the checks, draws them and writes their numbers. Returns figure.json."""
    folder = out / NAME
    checks, seconds = [], 0.0
    for make in CHECKS:
        check, took = _made(make, scale, folder)
        checks.append(check)
        seconds += took
        say(f"{check.name}: {check.finding}")
    draw_laws([check.panel for check in checks if check.panel is not None], folder / f"{NAME}.png")
    summary = {
        "schema": SCHEMA,
        "figure": NAME,
        "title": "small checks of the theory",
        "scale": scale,
        "published": "; ".join(check.claim for check in checks),
        "measured": [f"{check.name}: {check.finding}" for check in checks],
        "differs": "" if scale != "quick" else "tiny d and n",
        "command": command,
        "runs": len(checks),
        "done": len(checks),
        "failed": 0,
        "reasons": [],
        "run_seconds": round(seconds, 1),
        "pictures": [f"{NAME}.png"],
        "exhume": VERSION,
    }
    write_json(folder / "figure.json", summary)
    return summary


def _made(make: Callable[[Scale], Check], scale: Scale, folder: Path) -> tuple[Check, float]:
    """The check, from before where this version has made it, and the seconds that it took."""
    path = folder / f"{make.__name__}.json"
    if path.is_file():
        kept = read_json(path)
        if kept.get("exhume") == VERSION:
            panel = None if kept["panel"] is None else LawPanel(**kept["panel"])
            return Check(**{**kept["check"], "panel": panel}), float(kept["seconds"])
    began = time.monotonic()
    check = make(scale)
    seconds = time.monotonic() - began
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{check.name}.csv", as_csv(list(check.rows[0]), check.rows))
    of_check = {"name": check.name, "claim": check.claim, "rows": list(check.rows), "finding": check.finding}
    panel_kept = None if check.panel is None else asdict(check.panel)
    write_json(path, {"exhume": VERSION, "seconds": seconds, "check": of_check, "panel": panel_kept})
    return check, seconds
