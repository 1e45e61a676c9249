"""`exhume reproduce`: the paper's figures by name."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from exhume.cli.output import print_json, say
from exhume.requests.request import Option
from exhume_papers.cli.sweep import EngineOptions

if TYPE_CHECKING:
    from exhume_papers.catalogue.figure import Figure, Scale
    from exhume_papers.catalogue.reproduce import PlannedFigure
    from exhume_papers.sweeps.engines import Engine


class ReproduceRequest(EngineOptions):
    command: ClassVar[str] = "reproduce"

    figures: Annotated[
        tuple[str, ...], Option("fig1 ... fig17, a part like fig6-resnet, or theory.", argument=True)
    ] = ()
    everything: Annotated[bool, Option("All figures, and the checks of the theory.", flag="--all")] = False
    quick: Annotated[bool, Option("Tiny sizes: all figures in minutes.")] = False
    paper: Annotated[bool, Option("The published sizes: days, or a cluster.")] = False
    out: Annotated[Path, Option("Folder for pictures and numbers.")] = Path("reproduction")
    page: Annotated[Path | None, Option("A Markdown page to put the table of all results into.")] = None


def reproduce(request: ReproduceRequest, json: bool) -> None:
    """Make figures of the paper again: run what they need, draw them, write the numbers beside them.

    Without --quick or --paper the sizes are those that two cores and 24 GB can do. Killed or stopped, the same command
    goes on; figures share their runs.

    Example: exhume reproduce fig3 --quick
    """
    from exhume.errors import UsageError
    from exhume_papers.catalogue.checks import NAME, write_checks
    from exhume_papers.catalogue.document import write_document
    from exhume_papers.catalogue.registry import FIGURES, chosen

    figures, everything = request.figures, request.everything
    if request.quick and request.paper:
        raise UsageError("expected one of --quick and --paper, found both")
    if bool(figures) == everything:
        raise UsageError(f"expected names of figures ({', '.join(FIGURES)}, {NAME}) or --all, found neither or both")
    scale: Scale = "quick" if request.quick else "paper" if request.paper else "here"
    began, folder = time.monotonic(), request.out / scale
    wanted = list(FIGURES.values()) if everything else chosen([name for name in figures if name != NAME])
    command = _command(scale)
    ready = _plan(wanted, scale, request)
    interrupted = _run(ready, folder, request)
    done = [_write(one, scale, folder, command, json) for one in ready]
    if (everything or NAME in figures) and not interrupted:
        done.append(write_checks(scale, folder, f"{command} {NAME}", lambda words: say(words, json)))
    if request.page is not None:
        write_document(request.out, request.page)
        say(f"wrote {request.page}", json)
    seconds = round(time.monotonic() - began, 1)
    say(f"{len(done)} figures in {seconds:.0f} s; pictures and numbers are in {folder}", json)
    if json:
        print_json({"figures": done, "seconds": seconds, "out": str(folder)})
    if interrupted:
        say("interrupted: kept what was done so far; the same command continues", as_json=True)
        raise typer.Exit(130)
    if any(figure["failed"] for figure in done):
        raise typer.Exit(1)


def _command(scale: "Scale") -> str:
    """Without the figures: each has its own."""
    return "exhume reproduce" + ("" if scale == "here" else f" --{scale}")


def _plan(wanted: list["Figure"], scale: "Scale", request: ReproduceRequest) -> list["PlannedFigure"]:
    """With --all, figures whose data are not there are left out, and this is said."""
    from exhume.errors import ExhumeError
    from exhume_papers.catalogue.reproduce import plan_figure

    ready = []
    for figure in wanted:
        try:
            ready.append(plan_figure(figure, scale, request.data_dir))
        except ExhumeError as problem:
            if not request.everything:
                raise type(problem)(f"{figure.name}: {problem}") from problem
            say(f"{figure.name}: not run: {problem}", as_json=True)
    return ready


def _run(ready: list["PlannedFigure"], folder: Path, request: ReproduceRequest) -> bool:
    """Whether somebody stopped it."""
    from exhume_papers.catalogue.reproduce import SWEEP, run_figures
    from exhume_papers.cli.sweep_display import watching
    from exhume_papers.sweeps.engine_choice import make_engine, usable_cores, usable_memory

    def make(alone: bool) -> "Engine":
        if alone and request.engine == "local":
            return make_engine("local", folder / SWEEP, workers=1, threads=usable_cores())
        return make_engine(request.engine, folder / SWEEP, workers=request.workers, address=request.address)

    memory, again = usable_memory() if request.engine == "local" else math.inf, request.retry_failed
    swept = run_figures(ready, folder, make, memory=memory, retry_failed=again, onlooker=watching)
    return any(one.interrupted for one in swept)


def _write(planned: "PlannedFigure", scale: "Scale", folder: Path, command: str, json: bool) -> dict[str, Any]:
    from exhume_papers.catalogue.document import duration
    from exhume_papers.catalogue.reproduce import write_figure

    name = planned.figure.name
    summary = write_figure(planned, scale, folder, f"{command} {name}")
    computing, wall = duration(summary["run_seconds"]), duration(summary["wall_seconds"])
    runs = f"{summary['done']} of {summary['runs']} runs, {computing} of computing in {wall} on the clock"
    say(f"{name}: {planned.figure.title} ({runs})", json)
    for sentence in summary["measured"]:
        say(f"  {sentence}", json)
    return summary
