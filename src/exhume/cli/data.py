"""`exhume data fetch`: public data sets, downloaded once."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.options import JsonOption
from exhume.cli.output import download_bar, print_json, say

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def options() -> None:
    """Data sets on this machine.

    Example: exhume data fetch cifar10
    """


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="cifar10 or tiny-imagenet.")],
    data_dir: Annotated[Path | None, typer.Option(help="Where to put it; default: a cache folder.")] = None,
    source: Annotated[str | None, typer.Option(help="Another address of the same archive, such as a mirror.")] = None,
    json: JsonOption = False,
) -> None:
    """Download a data set with progress, checksum and resume.

    Example: exhume data fetch cifar10
    """
    from exhume.data.fetch import fetch as download

    with download_bar(name) as bar:
        folder = download(
            name,
            data_dir,
            source=source,
            progress=lambda done, total: bar.update(bar.task_ids[0], completed=done, total=total),
        )
    say(f"{name} is in {folder}", json)
    if json:
        print_json({"name": name, "folder": str(folder)})
