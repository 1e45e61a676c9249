"""`exhume runs`: what lies in a folder of runs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from exhume.cli.output import print_json, printable
from exhume.requests.request import Option, Request

if TYPE_CHECKING:
    from rich.table import Table

WIDTH_WITHOUT_SCREEN = 200
COLUMNS = "n,d,p,ratio,activation,method,outcome,samples_found,error,seconds"
MOST_COMPARED = 12


class RunsRequest(Request):
    command: ClassVar[str] = "runs"

    folder: Annotated[Path, Option("The folder that holds run folders, or that of a sweep.", argument=True)] = Path(
        "runs"
    )
    where: Annotated[
        tuple[str, ...], Option("Only runs with e.g. outcome=recovered or 'ratio>2'; may be repeated.")
    ] = ()
    columns: Annotated[
        str | None, Option(f"What to show of each run; default: {COLUMNS}, and why any of them failed.")
    ] = None
    compare: Annotated[bool, Option("Side by side, and only where they differ.")] = False
    by: Annotated[str | None, Option("Group by these keys, e.g. ratio,method, and average.")] = None
    value: Annotated[str, Option("With --by: what to average.")] = "error"


def runs(request: RunsRequest, json: bool) -> None:
    """List the runs in a folder with their main numbers, choose among them, compare them, average over them.

    Keys are those of summary.json, data.KEY, model.KEY and attack.KEY for what a run was told, and status.

    Example: exhume runs runs --where outcome=recovered --where 'ratio>2'
    """
    from exhume.errors import UsageError
    from exhume.values import parse_names
    from exhume_papers.sweeps.listing import Condition, differences, group, list_runs, select, with_settings

    found = list_runs(request.folder)
    selected = select(with_settings(request.folder, found), [Condition.parse(text) for text in request.where])
    found = {name: run for name, run in found.items() if name in selected}
    result: dict[str, Any] = {"runs": [{"run": name, **summary} for name, summary in found.items()]}
    if request.by is not None:
        keys = parse_names(request.by) or ()
        groups = group(selected, keys, request.value)
        lines = [[*one.agreed, one.count, one.mean, one.deviation] for one in groups]
        table = _table([*keys, "runs", f"mean {request.value}", "std"], lines)
        result = {
            "groups": [
                {**dict(zip(keys, line, strict=False)), "runs": line[-3], "mean": line[-2], "std": line[-1]}
                for line in lines
            ]
        }
    elif request.compare:
        if len(selected) > MOST_COMPARED:
            raise UsageError(
                f"expected at most {MOST_COMPARED} runs to compare, found {len(selected)}; choose with --where"
            )
        differing = differences(selected)
        table = _table(["", *selected], [[key, *values] for key, values in differing.items()])
        result = {"runs": list(selected), "differences": differing}
    else:
        shown = parse_names(request.columns or COLUMNS) or ()
        if request.columns is None and any(run["status"] == "failed" for run in selected.values()):
            shown = (*shown, "reason")
        table = _table(["run", *shown], [[name, *(run.get(key) for key in shown)] for name, run in selected.items()])
    _print(table, json)
    if json:
        print_json(result)


def _table(names: Sequence[str], lines: Sequence[Sequence[Any]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for position, name in enumerate(names):
        numbers = position > 0 and all(isinstance(line[position], int | float | None) for line in lines)
        table.add_column(printable(name), justify="right" if numbers else "left")
    for line in lines:
        table.add_row(*(_cell(value) for value in line))
    return table


def _print(table: "Table", json: bool) -> None:
    """No markup: the names are the user's; and a table in a pipe is not cut to the width of a screen."""
    from rich.console import Console

    stream = sys.stderr if json else sys.stdout
    Console(file=stream, markup=False, width=None if stream.isatty() else WIDTH_WITHOUT_SCREEN).print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else printable(str(value))
