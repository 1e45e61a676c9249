"""The figures of the last soak run, put between two marks of docs/reliability.md.

    python soak/document.py build/soak docs/reliability.md

A part that has written no JSON is shown as not run, so that nothing old passes for new.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
Figures = Mapping[str, Any]


def main() -> int:
    results, page = Path(sys.argv[1]), Path(sys.argv[2])
    page.write_text(with_figures(page.read_text(encoding="utf-8"), tables(results)), encoding="utf-8")
    return 0


def with_figures(text: str, figures: str) -> str:
    """
    >>> with_figures(f"a {BEGIN}old{END} b", "new").replace(chr(10), " ")
    'a <!-- figures: begin --> new<!-- figures: end --> b'
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected the marks {BEGIN} and {END} in the page, found one or none")
    return f"{before}{BEGIN}\n{figures}{END}{after}"


def tables(results: Path) -> str:
    parts: dict[str, Callable[[Figures], str]] = {
        **{"kills": _kills, "faults": _faults, "surroundings": _faults, "web": _faults},
        **{"memory": _memory, "fuzz": _fuzz},
    }
    told = {name: _read(results / f"{name}.json") for name in parts}
    lines = ["| part | done | broken | seed | day (UTC), exhume |", "| --- | --- | --- | --- | --- |"]
    lines += [_overview(name, figures) for name, figures in told.items()]
    lines += _whole(_read(results / "run.json"))
    details = [
        f"### {name.capitalize()}\n\n{parts[name](figures)}" for name, figures in told.items() if figures is not None
    ]
    return "\n".join(["", *lines, "", *details]) + "\n"


def _read(path: Path) -> Figures | None:
    return json.loads(path.read_text()) if path.is_file() else None


def _overview(name: str, figures: Figures | None) -> str:
    if figures is None:
        return f"| {name} | not run | | | |"
    asked = {
        "kills": lambda: f"{figures['kills']} kills, {figures['resumed_runs']} runs resumed",
        "faults": lambda: f"{figures['done']} faults" + f", {figures['skipped']} left out" * bool(figures["skipped"]),
        "surroundings": lambda: f"{figures['done']} odd surroundings",
        "web": lambda: f"{figures['requests']} hostile requests, a kill, SIGTERM",
        "memory": lambda: f"{figures['runs']} attacks, {figures['refusals']} budgets too small",
        "fuzz": lambda: f"{figures['inputs']:,} mutated inputs",
    }[name]()
    broken = sum(figures[key] for key in FUZZ_COUNTS) if name == "fuzz" else len(figures["faults"])
    when = ", ".join(part for part in (figures.get("day", ""), _version(figures)) if part)
    return f"| {name} | {asked} | {broken} | {figures.get('seed', '')} | {when} |"


def _version(figures: Figures) -> str:
    commit = f" ({figures['commit']})" if figures.get("commit") else ""
    return f"{figures.get('version', '')}{commit}"


def _whole(run: Figures | None) -> list[str]:
    """Of the last run of all parts; a part that was run by itself since has its own day and time in the table."""
    if run is None:
        return []
    told = f"seed {run['seed']}, {run['day']} (UTC), exhume {_version(run)}, {run['cores']} cores"
    return ["", f"The last run of all parts (`soak/run.py`): {told}, {run['seconds'] / 60:.1f} minutes in all."]


def _kills(figures: Figures) -> str:
    lines = ["| killed | kills | of these at an operation on a file | faults |", "| --- | --- | --- | --- |"]
    for scene in figures["scenes"]:
        lines.append(f"| {scene['name']} | {scene['kills']} | {scene['at_files']} | {len(scene['faults'])} |")
    return "\n".join([*lines, ""])


def _faults(figures: Figures) -> str:
    """What was said is told only where a promise was broken, or where the case was left out."""
    lines, told = ["| case | exit code | broken |", "| --- | --- | --- |"], []
    for case in figures["cases"]:
        code = "left out" if case["skipped"] else "" if case["exit_code"] is None else case["exit_code"]
        lines.append(f"| {case['name']} | {code} | {len(case['faults'])} |")
        if case["faults"] or case["skipped"]:
            told.append(f"- {case['name']}: {case['skipped'] or _without_places(case['said'])}")
    return "\n".join([*lines, "", *told, *([""] if told else [])])


def _memory(figures: Figures) -> str:
    lines = ["| victim | method | budget, MiB | peak, MiB | share |", "| --- | --- | --- | --- | --- |"]
    then = [line["then"] for line in figures["refused"] if line["then"] is not None]
    for line in [*figures["measured"], *then]:
        method = line["method"] + (", told n" if line["told"] else "")
        numbers = f"{line['budget_mb']:.0f} | {line['peak_mb']:.0f} | {line['peak_mb'] / line['budget_mb']:.0%}"
        lines.append(f"| {line['victim']} | {method} | {numbers} |")
    refusals = [f"- refused in {line['seconds']:.0f} s: `{line['said']}`" for line in figures["refused"]]
    return "\n".join([*lines, "", *refusals, ""])


FUZZ_COUNTS = ("crashes", "hangs", "tracebacks")


def _fuzz(figures: Figures) -> str:
    counts = ", ".join(f"{figures[key]} {key}" for key in FUZZ_COUNTS)
    inputs = figures["targets"].values()
    return f"{counts.capitalize()}. {len(inputs)} targets, with {min(inputs):,} to {max(inputs):,} inputs each.\n"


def _without_places(words: str) -> str:
    """Names of files, without the temporary folders that they were in.

    >>> _without_places("found /tmp/x-1/tmp2/f/run: full")
    'found run: full'
    """
    return " ".join(word.rsplit("/", 1)[-1] if word.startswith("/") else word for word in words.split())


if __name__ == "__main__":
    sys.exit(main())
