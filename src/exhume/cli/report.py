"""`exhume report`: one page about a run."""

from typing import Annotated

import typer

from exhume.cli.options import JsonOption, ModelOption, RunArgument
from exhume.cli.output import print_json, say


def report(
    run: RunArgument,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show recovered pictures, not blurred.")] = False,
    model: ModelOption = None,
    json: JsonOption = False,
) -> None:
    """Write report.html (self-contained), report.json and pictures into RUN.

    Example: exhume report runs/a --reveal
    """
    from exhume.experiments.run import RunFolder
    from exhume.report.page import write_report

    folder = RunFolder.existing(run)
    path = write_report(folder, reveal, model)
    say(f"wrote {path}", json)
    if json:
        print_json({**folder.summary(), "report": str(path)})
