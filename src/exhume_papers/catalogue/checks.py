"""All checks of the theory, run and written."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exhume.files import SCHEMA, write_json, write_text
from exhume.version import VERSION
from exhume_papers.catalogue.figure import Scale
from exhume_papers.catalogue.outliers import outlier_first
from exhume_papers.catalogue.theory import Check, no_duplicates, smallest_eigenvalue, uniform_concentration
from exhume_papers.figures.law_figures import draw_laws
from exhume_papers.sweeps.results import as_csv

CHECKS: tuple[Callable[[Scale], Check], ...] = (
    no_duplicates,
    uniform_concentration,
    smallest_eigenvalue,
    outlier_first,
)
NAME = "theory"


def write_checks(scale: Scale, out: Path, command: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs the checks, draws them and writes their numbers. Returns figure.json."""
    began, folder = time.monotonic(), out / NAME
    checks = []
    for check in CHECKS:
        checks.append(check(scale))
        say(f"{checks[-1].name}: {checks[-1].finding}")
        write_text(folder / f"{checks[-1].name}.csv", as_csv(list(checks[-1].rows[0]), checks[-1].rows))
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
        "run_seconds": round(time.monotonic() - began, 1),
        "pictures": [f"{NAME}.png"],
        "exhume": VERSION,
    }
    write_json(folder / "figure.json", summary)
    return summary
