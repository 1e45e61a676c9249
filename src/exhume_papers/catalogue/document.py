"""The page that puts what was measured next to what was published, figure by figure, from the results alone."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.files import check_schema, read_json, write_text
from exhume_papers.catalogue import registry
from exhume_papers.catalogue.figure import SCALES
from exhume_papers.catalogue.reproduce import SUMMARY

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
LEFT_OUT, FAILED, NOT_RUN = "runs not run", "runs failed: ", "not run"
SECTION, SCALE = "### ", "- Scale: "
PICTURES = "images"


def write_document(results: Path, page: Path) -> None:
    """Puts a section per figure between the two marks of a page, or at its end; the rest of the page stays as it is.

    So does the section of a figure of which there is no better result than the one that the page tells: figures may
    have been made on several machines. A picture `images/NAME.png` beside the page is shown in its section.
    """
    text = page.read_text(encoding="utf-8") if page.exists() else "# Figures, measured here next to published\n"
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        earlier, _, after = rest.partition(END)
    else:
        before, earlier, after = text.rstrip("\n") + "\n\n", "", "\n"
    drawn = {picture.stem for picture in (page.parent / PICTURES).glob("*.png")}
    write_text(page, f"{before}{BEGIN}\n{figure_sections(results, earlier, drawn)}{END}{after}")


def figure_sections(results: Path, earlier: str = "", drawn: set[str] | frozenset[str] = frozenset()) -> str:
    """Of each figure the largest scale at which all its runs ended, or else any of them did.

    `earlier`: such sections of before, which stay where the results are of a smaller scale, or less complete.
    `drawn`: figures of which there is a picture.
    """
    titles = {name: figure.title for name, figure in registry.FIGURES.items()}
    titles["theory"] = "small checks of the theory"
    kept = {part.partition("\n")[0].strip(): SECTION + part.strip("\n") for part in _sections(earlier)}
    told = [_section(results, name, title, kept.get(name), name in drawn) for name, title in titles.items()]
    return "\n" + "\n\n".join(told) + "\n\n"


def _sections(text: str) -> list[str]:
    return re.split(rf"^{SECTION}", text, flags=re.MULTILINE)[1:]


def _section(results: Path, name: str, title: str, kept: str | None, drawn: bool) -> str:
    path, found = _largest(results, name)
    if kept is not None and _rank_of_section(kept) > _rank(found):
        return kept
    try:
        return _written(name, title, found, drawn)
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


def _rank_of_section(section: str) -> Rank:
    """That of the result which a section of the page tells."""
    scale = re.search(rf"^{SCALE}(\w+)", section, flags=re.MULTILINE)
    if scale is None:
        return NOTHING
    failed = re.search(rf"(\d+) {FAILED}", section)
    return LEFT_OUT not in section, _place(scale[1]), -int(failed[1]) if failed else 0


def _place(scale: str) -> int:
    names: tuple[str, ...] = SCALES
    return names.index(scale) if scale in names else -1


def _left_to_run(found: Mapping[str, Any]) -> int:
    return int(found.get("runs", 0)) - int(found.get("done", 0)) - int(found.get("failed", 0))


def _written(name: str, title: str, found: Mapping[str, Any] | None, drawn: bool) -> str:
    heading = [f"{SECTION}{name}", f"{title[0].upper()}{title[1:]}.", ""]
    heading += [f"![{name}: {title}]({PICTURES}/{name}.png)", ""] if drawn else []
    if found is None:
        published = registry.FIGURES[name].published if name in registry.FIGURES else ""
        return "\n".join([*heading, *_list("Published", published), f"- Here: {NOT_RUN} (`exhume reproduce {name}`)"])
    return "\n".join(
        [
            *heading,
            *_list("Published", str(found["published"])),
            "- Here:",
            "",  # without it a Markdown reader takes what follows for the same line
            *[f"    - {_line(measured)}" for measured in [*found["measured"], *_left_out(found)]],
            "",
            f"{SCALE}{found['scale']}",
            *(_list("Differences", str(found["differs"])) if found["differs"] else []),
            f"- Command: `{found['command']}`, {_times(found)}",
        ]
    )


def _list(name: str, text: str) -> list[str]:
    """One point, or one per clause where there are several. What is in brackets stays together."""
    clauses = [_line(clause) for clause in re.split(r"; (?![^(]*\))", text)]
    if len(clauses) == 1:
        return [f"- {name}: {clauses[0]}"]
    return [f"- {name}:", "", *[f"    - {clause}" for clause in clauses], ""]


def _line(text: str) -> str:
    return " ".join(text.split())


def _times(found: Mapping[str, Any]) -> str:
    """What the runs took, and how long that was on the clock, where it was kept."""
    computing, wall = duration(float(found["run_seconds"])), found.get("wall_seconds")
    return computing if wall is None else f"{computing} of computing in {duration(float(wall))}"


def _left_out(found: Mapping[str, Any]) -> list[str]:
    missing = _left_to_run(found)
    lines = [f"{missing} of {found['runs']} {LEFT_OUT}"] if missing else []
    return lines + ([f"{found['failed']} {FAILED}{found['reasons'][0]}"] if found["failed"] else [])


def duration(seconds: float) -> str:
    """
    >>> duration(42.4), duration(150), duration(7300)
    ('42 s', '2.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
