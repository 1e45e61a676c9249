"""`exhume runs`: what lies in a folder of runs."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.options import JsonOption
from exhume.cli.output import print_json


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
    Console(stderr=json).print(table)
    if json:
        print_json({"runs": [{"run": name, **summary} for name, summary in found.items()]})


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
