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
    lines = [
        "| part | done | broken | seed | day (UTC) | exhume | time |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_overview(name, figures) for name, figures in told.items()]
    lines += _whole(_read(results / "run.json"))
    details = [parts[name](figures) for name, figures in told.items() if figures is not None]
    return "\n".join(["", *lines, "", *details]) + "\n"


def _read(path: Path) -> Figures | None:
    return json.loads(path.read_text()) if path.is_file() else None


def _overview(name: str, figures: Figures | None) -> str:
    if figures is None:
        return f"| {name} | not run | | | | | |"
    asked = {
        "kills": lambda: f"{figures['kills']} kills, {figures['resumed_runs']} runs resumed",
        "faults": lambda: f"{figures['done']} faults" + f", {figures['skipped']} left out" * bool(figures["skipped"]),
        "surroundings": lambda: f"{figures['done']} odd surroundings",
        "web": lambda: f"{figures['requests']} hostile requests, a kill, SIGTERM",
        "memory": lambda: f"{figures['runs']} attacks, {figures['refusals']} budgets too small",
        "fuzz": lambda: f"{figures['inputs']:,} mutated inputs",
    }[name]()
    broken = sum(figures[key] for key in FUZZ_COUNTS) if name == "fuzz" else len(figures["faults"])
    when = f"{figures.get('seed', '')} | {figures.get('day', '')} | {_version(figures)}"
    return f"| {name} | {asked} | {broken} | {when} | {figures['seconds']:.0f} s |"


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
    lines = ["| killed | kills | of these at an operation on a file | left temporary files until resumed | faults |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for scene in figures["scenes"]:
        counts = (scene["kills"], scene["at_files"], scene["temporaries_after_kills"], len(scene["faults"]))
        lines.append(f"| {scene['name']} | {' | '.join(map(str, counts))} |")
    return "\n".join([*lines, ""])


def _faults(figures: Figures) -> str:
    lines = ["| fault | exit code | what it said | faults |", "| --- | --- | --- | --- |"]
    for case in figures["cases"]:
        said = f"left out: {case['skipped']}" if case["skipped"] else _without_places(case["said"])
        code = "" if case["exit_code"] is None else case["exit_code"]
        lines.append(f"| {case['name']} | {code} | {said.replace('|', '/')} | {len(case['faults'])} |")
    return "\n".join([*lines, ""])


def _memory(figures: Figures) -> str:
    lines = ["| victim | V, MiB | method | budget, MiB | peak, MiB | share |", "| --- | --- | --- | --- | --- | --- |"]
    then = [line["then"] for line in figures["refused"] if line["then"] is not None]
    for line in [*figures["measured"], *then]:
        method = line["method"] + (", told n" if line["told"] else "")
        numbers = f"{line['budget_mb']:.0f} | {line['peak_mb']:.0f} | {line['peak_mb'] / line['budget_mb']:.0%}"
        lines.append(f"| {line['victim']} | {line['features_mb']:.0f} | {method} | {numbers} |")
    refusals = [f"- refused in {line['seconds']:.0f} s: `{line['said']}`" for line in figures["refused"]]
    return "\n".join([*lines, "", *refusals, ""])


FUZZ_COUNTS = ("crashes", "hangs", "tracebacks")


def _fuzz(figures: Figures) -> str:
    counts = ", ".join(f"{figures[key]} {key}" for key in FUZZ_COUNTS)
    targets = ", ".join(f"{name} {count:,}" for name, count in sorted(figures["targets"].items()))
    return f"Fuzzed: {counts}. Inputs by target: {targets}.\n"


def _without_places(words: str) -> str:
    """Names of files, without the temporary folders that they were in.

    >>> _without_places("found /tmp/x-1/tmp2/f/run: full")
    'found run: full'
    """
    return " ".join(word.rsplit("/", 1)[-1] if word.startswith("/") else word for word in words.split())


if __name__ == "__main__":
    sys.exit(main())
