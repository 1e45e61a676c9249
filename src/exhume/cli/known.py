"""`exhume known`: what an informed adversary knows, written from the truth by the owner of a run."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.options import JsonOption, RunArgument
from exhume.cli.output import print_json, say


def known(
    run: RunArgument,
    missing: Annotated[int, typer.Option(help="The number of the sample that is not known.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Default: known.safetensors in the run folder.")] = None,
    json: JsonOption = False,
) -> None:
    """Write all training samples of RUN but one for 'exhume attack RUN --method informed'.

    Example: exhume known runs/a --missing 3
    """
    from exhume.experiments.known_samples import write_known
    from exhume.experiments.run import RunFolder

    path = write_known(RunFolder.existing(run), missing, out)
    flag = "" if out is None else f" --known {path}"
    say(f"wrote {path}, all samples but number {missing}; next: exhume attack {run} --method informed{flag}", json)
    if json:
        print_json({"known": path.name, "missing": missing})
