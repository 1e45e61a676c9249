"""`exhume runs`: what lies in a folder of runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.options import JsonOption
from exhume.cli.output import print_json

WIDTH_WITHOUT_SCREEN = 200


def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds run folders.")] = Path("runs"),
    json: JsonOption = False,
) -> None:
    """List the runs in a folder with their main numbers.

    Example: exhume runs runs
    """
    from rich.console import Console
    from rich.table import Table

    from exhume.experiments.listing import list_runs

    found = list_runs(folder)
    columns = ("n", "d", "p", "ratio", "activation", "method", "outcome", "samples_found", "error", "seconds")
    table = Table(box=None, header_style="bold")
    table.add_column("run")
    for column in columns:
        table.add_column(column, justify="left" if column in ("activation", "method", "outcome") else "right")
    for name, summary in found.items():
        table.add_row(name, *(_cell(summary.get(column)) for column in columns))
    # no markup: the names are the user's; and a table in a pipe is not cut to the width of a screen
    stream = sys.stderr if json else sys.stdout
    Console(file=stream, markup=False, width=None if stream.isatty() else WIDTH_WITHOUT_SCREEN).print(table)
    if json:
        print_json({"runs": [{"run": name, **summary} for name, summary in found.items()]})


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
