"""`exhume known`: what an informed adversary knows, written from the truth by the owner of a run."""

from pathlib import Path
from typing import Annotated, ClassVar

from exhume.cli.output import print_json, say
from exhume.requests.kinds import Run
from exhume.requests.request import Option, Request


class KnownRequest(Request):
    command: ClassVar[str] = "known"

    run: Run
    missing: Annotated[int, Option("The number of the sample that is not known.")] = 0
    out: Annotated[Path | None, Option("Default: known.safetensors in the run folder.")] = None


def known(request: KnownRequest, json: bool) -> None:
    """Write all training samples of RUN but one for 'exhume attack RUN --method informed'.

    Example: exhume known runs/a --missing 3
    """
    from exhume.experiments.run import RunFolder
    from exhume_papers.making.known_samples import write_known

    path = write_known(RunFolder.existing(request.run), request.missing, request.out)
    flag = "" if request.out is None else f" --known {path}"
    then = f"exhume attack {request.run} --method informed{flag}"
    say(f"wrote {path}, all samples but number {request.missing}; next: {then}", json)
    if json:
        print_json({"known": path.name, "missing": request.missing})
