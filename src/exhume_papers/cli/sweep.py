"""`exhume sweep`: a grid of victims, attacks and seeds, which may be stopped at any time."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from exhume.cli.output import print_json, say
from exhume.requests.request import Option, Request

if TYPE_CHECKING:
    from exhume_papers.sweeps.sweeping import Swept


class EngineOptions(Request):
    """Where the runs of a grid are made."""

    engine: Annotated[str, Option("local (processes), ray, or here (one after the other).")] = "local"
    address: Annotated[str | None, Option("Of the Ray cluster; default: one on this machine.")] = None
    workers: Annotated[int | None, Option("Runs at the same time; default: one for each core.")] = None
    retry_failed: Annotated[bool, Option("Try runs again that failed before.")] = False
    data_dir: Annotated[
        str | None,
        Option("The folder with cifar-10-batches-bin/ and the like, for victims that name none.", metavar="PATH"),
    ] = None


class SweepRequest(EngineOptions):
    command: ClassVar[str] = "sweep"

    spec: Annotated[Path, Option("A TOML file: seeds, [[victim]], [[attack]].", argument=True)]
    out: Annotated[Path | None, Option("The sweep's folder; default: the name of SPEC without .toml.")] = None
    model: Annotated[
        tuple[str, ...],
        Option("Code of your own that SPEC may run, as it names it: package.module:factory; may be repeated."),
    ] = ()
    threads: Annotated[int | None, Option("Threads of a run; default: the cores divided by workers.")] = None
    check: Annotated[bool, Option("Check every run of the grid and leave.")] = False


def sweep(request: SweepRequest, json: bool) -> None:
    """Run every victim x attack x seed of SPEC and write results.csv. Killed or stopped, the same command goes on.

    The keys of a [[victim]] are kind and the options of 'exhume train KIND', those of an [[attack]] the options of
    'exhume attack', with _ or - inside; a list stands for each of its values. An [[attack]] may have a seed of its own
    besides those of its victim, and with method = "informed" the number of the missing sample, as in 'exhume known'.

    Example: exhume sweep threshold.toml
    """
    from exhume_papers.cli.sweep_display import watching
    from exhume_papers.sweeps.engine_choice import make_engine, usable_memory
    from exhume_papers.sweeps.spec_file import plan_spec
    from exhume_papers.sweeps.sweeping import run_sweep

    grid, plan = plan_spec(request.spec, request.data_dir, request.model)
    folder = request.out if request.out is not None else default_folder(request.spec)
    if request.check:
        say(f"{len(plan.runs)} runs on {len({run.victim.key for run in plan.runs})} victims, all in order", json)
        if json:
            print_json({"runs": len(plan.runs)})
        return
    where = make_engine(
        request.engine, folder, workers=request.workers, threads=request.threads, address=request.address
    )
    memory = usable_memory() if request.engine == "local" else math.inf
    with watching() as onlooker:
        swept = run_sweep(
            plan, folder, where, keep=grid.keep, retry_failed=request.retry_failed, memory=memory, onlooker=onlooker
        )
    tell_sweep(swept, folder, json)
    if json:
        print_json(summary(swept, folder))
    leave(swept)


def default_folder(spec: Path) -> Path:
    """
    >>> default_folder(Path("grids/a.toml")), default_folder(Path("b"))
    (PosixPath('grids/a'), PosixPath('b.sweep'))
    """
    return spec.with_suffix("") if spec.suffix else spec.with_name(f"{spec.name}.sweep")


def summary(swept: "Swept", folder: Path) -> dict[str, Any]:
    return {
        "runs": swept.done + swept.failed + swept.left,
        "done": swept.done,
        "failed": swept.failed,
        "left": swept.left,
        "seconds": round(swept.seconds, 2),
        "work_seconds": round(swept.work_seconds, 2),
        "results": str(folder / "results.csv"),
    }


def tell_sweep(swept: "Swept", folder: Path, json: bool) -> None:
    say(
        f"{swept.done} runs done, {swept.failed} failed, {swept.left} left, in {swept.seconds:.0f} s "
        f"(the runs of now by themselves {swept.work_seconds:.0f} s)",
        json,
    )
    if swept.failed:
        first = next(line for line in swept.rows if line["status"] == "failed")
        say(f"the first that failed: {first['reason']} (runs/{first['run']}); --retry-failed tries again", json)
    say(f"wrote {folder / 'results.csv'}", json)


def leave(swept: "Swept") -> None:
    """Exit code 130 where somebody stopped it, 1 where runs failed."""
    if swept.interrupted:
        say("interrupted: kept what was done so far; the same command continues", as_json=True)
        raise typer.Exit(130)
    if swept.failed:
        raise typer.Exit(1)
