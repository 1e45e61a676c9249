"""`exhume data`: public data sets, downloaded once; how public images look."""

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
    from exhume_papers.data.fetch import fetch as download

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


@app.command("spectrum")
def spectrum(
    images: Annotated[Path, typer.Argument(help="A folder of public images.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    side: Annotated[int, typer.Option(min=2, help="Pixels a side of the images that will be looked for.")] = 32,
    grey: Annotated[bool, typer.Option("--grey", help="One channel instead of three.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure how much of public images is at which frequency, for `exhume attack --prior image --spectrum FILE`.

    Example: exhume data spectrum pictures --out spectrum.json
    """
    from exhume.attacks.prior.spectrum import Spectrum, save_spectrum
    from exhume.data.public_images import load_public_rows

    shape = (1 if grey else 3, side, side)
    rows = load_public_rows(images, shape)
    save_spectrum(Spectrum.measured(rows, shape, images.name), out)
    say(f"the spectrum of {len(rows):,} images is in {out}", json)
    if json:
        print_json({"images": len(rows), "file": str(out), "shape": list(shape)})
