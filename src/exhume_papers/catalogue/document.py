"""The page that puts what was measured next to what was published, figure by figure, from the results alone."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.files import check_schema, read_json, write_text
from exhume_papers.catalogue import registry
from exhume_papers.catalogue.figure import SCALES
from exhume_papers.catalogue.reproduce import SUMMARY

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
LEFT_OUT, FAILED = "runs not run", "runs failed: "
HEAD = "| figure | published | measured here | scale and why it differs | command | computing, on the clock |\n" + (
    "| --- | --- | --- | --- | --- | --- |\n"
)


def write_document(results: Path, page: Path) -> None:
    """Puts the table between the two marks of a page, or at its end; the rest of the page stays as it is.

    So does the line of a figure of which there is no better result than the one that the page tells: figures may have
    been made on several machines.
    """
    text = page.read_text(encoding="utf-8") if page.exists() else "# Figures, measured here next to published\n"
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        earlier, _, after = rest.partition(END)
    else:
        before, earlier, after = text.rstrip("\n") + "\n\n", "", "\n"
    write_text(page, f"{before}{BEGIN}\n{figure_table(results, earlier)}{END}{after}")


def figure_table(results: Path, earlier: str = "") -> str:
    """One line a figure, of the largest scale at which all its runs ended, or else any did; 'not run' if there is none.

    `earlier`: such a table of before, whose lines stay where the results are of a smaller scale, or less complete.
    """
    titles = {name: figure.title for name, figure in registry.FIGURES.items()}
    titles["theory"] = "small checks of the theory"
    kept = {line[2:].partition(":")[0]: f"{line}\n" for line in earlier.splitlines() if line.startswith("| ")}
    return HEAD + "".join(_figure_line(results, name, title, kept.get(name)) for name, title in titles.items())


def _figure_line(results: Path, name: str, title: str, kept: str | None) -> str:
    path, found = _largest(results, name)
    if kept is not None and _rank_of_line(kept) > _rank(found):
        return kept
    try:
        return _line(name, title, found)
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        raise ExhumeError(
            f"expected a complete {path}, found it damaged ({problem}); run 'exhume reproduce {name}' again"
        ) from problem


def _largest(results: Path, name: str) -> tuple[Path, dict[str, Any] | None]:
    """figure.json of the figure at the largest scale at which all its runs ended, or else any of them did."""
    best: tuple[Path, dict[str, Any] | None] = (results, None)
    for scale in SCALES:
        path = results / scale / name / SUMMARY
        if path.is_file():
            found = read_json(path)
            check_schema(found, path)
            if _rank(found) > _rank(best[1]):
                best = path, found
    return best


Rank = tuple[bool, int, int]
"""Whether all runs ended, the place of the scale (-2 where nothing was run), and how many failed, below zero."""


NOTHING: Rank = (False, -2, 0)


def _rank(found: Mapping[str, Any] | None) -> Rank:
    if found is None or not found.get("done"):
        return NOTHING
    return not _left_to_run(found), _place(str(found.get("scale"))), -int(found.get("failed", 0))


def _rank_of_line(line: str) -> Rank:
    """That of the result which a line of the table tells."""
    cells = line.split(" | ")
    scale = cells[3].partition(":")[0] if len(cells) > 3 else ""
    if not scale:
        return NOTHING
    failed = re.search(rf"(\d+) {FAILED}", line)
    return LEFT_OUT not in line, _place(scale), -int(failed[1]) if failed else 0


def _place(scale: str) -> int:
    names: tuple[str, ...] = SCALES
    return names.index(scale) if scale in names else -1


def _left_to_run(found: Mapping[str, Any]) -> int:
    return int(found.get("runs", 0)) - int(found.get("done", 0)) - int(found.get("failed", 0))


def _line(name: str, title: str, found: Mapping[str, Any] | None) -> str:
    if found is None:
        published = registry.FIGURES[name].published if name in registry.FIGURES else ""
        return _row([f"{name}: {title}", published, "not run", "", f"`exhume reproduce {name}`", ""])
    differs = f"{found['scale']}: {found['differs']}" if found["differs"] else str(found["scale"])
    return _row(
        [
            f"{name}: {title}",
            str(found["published"]),
            "<br>".join([*found["measured"], *_left_out(found)]),
            differs,
            f"`{found['command']}`",
            _times(found),
        ]
    )


def _times(found: Mapping[str, Any]) -> str:
    """What the runs took, and how long that was on the clock, where it was kept."""
    computing, wall = duration(float(found["run_seconds"])), found.get("wall_seconds")
    return computing if wall is None else f"{computing} in {duration(float(wall))}"


def _left_out(found: Mapping[str, Any]) -> list[str]:
    missing = _left_to_run(found)
    lines = [f"{missing} of {found['runs']} {LEFT_OUT}"] if missing else []
    return lines + ([f"{found['failed']} {FAILED}{found['reasons'][0]}"] if found["failed"] else [])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def duration(seconds: float) -> str:
    """
    >>> duration(42.4), duration(150), duration(7300)
    ('42 s', '2.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
