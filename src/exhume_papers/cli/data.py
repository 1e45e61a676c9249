"""`exhume data`: public data sets, downloaded once; how public images look."""

from pathlib import Path
from typing import Annotated, ClassVar

import typer
from pydantic import Field

from exhume.cli.output import print_json, say
from exhume.requests.command_options import add_command
from exhume.requests.request import Option, Request
from exhume_papers.cli.bars import download_bar

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def options() -> None:
    """Data sets on this machine.

    Example: exhume data fetch cifar10
    """


class FetchRequest(Request):
    command: ClassVar[str] = "data fetch"

    name: Annotated[str, Option("cifar10 or tiny-imagenet.", argument=True)]
    data_dir: Annotated[Path | None, Option("Where to put it; default: a cache folder.")] = None
    source: Annotated[str | None, Option("Another address of the same archive, such as a mirror.")] = None


def fetch(request: FetchRequest, json: bool) -> None:
    """Download a data set with progress, checksum and resume.

    Example: exhume data fetch cifar10
    """
    from exhume_papers.data.fetch import fetch as download

    with download_bar(request.name) as bar:
        folder = download(
            request.name,
            request.data_dir,
            source=request.source,
            progress=lambda done, total: bar.update(bar.task_ids[0], completed=done, total=total),
        )
    say(f"{request.name} is in {folder}", json)
    if json:
        print_json({"name": request.name, "folder": str(folder)})


class SpectrumRequest(Request):
    command: ClassVar[str] = "data spectrum"

    images: Annotated[Path, Option("A folder of public images.", argument=True)]
    out: Annotated[Path, Option("The file to write.")]
    side: Annotated[int, Field(ge=2), Option("Pixels on a side of the images that will be looked for.")] = 32
    grey: Annotated[bool, Option("One channel instead of three.")] = False


def spectrum(request: SpectrumRequest, json: bool) -> None:
    """Measure how much of public images is at which frequency, for `exhume attack --prior image --spectrum FILE`.

    Example: exhume data spectrum pictures --out spectrum.json
    """
    from exhume.attacks.prior.spectrum import FrequencySpectrum, save_spectrum
    from exhume.data.public_images import load_public_rows

    shape = (1 if request.grey else 3, request.side, request.side)
    rows = load_public_rows(request.images, shape)
    save_spectrum(FrequencySpectrum.measured(rows, shape, request.images.name), request.out)
    say(f"the spectrum of {len(rows):,} images is in {request.out}", json)
    if json:
        print_json({"images": len(rows), "file": str(request.out), "shape": list(shape)})


add_command(app, "fetch", fetch)
add_command(app, "spectrum", spectrum)
