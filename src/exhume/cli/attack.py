"""`exhume attack`: recover the training data from a run's observation, and from nothing else."""

import math
from typing import TYPE_CHECKING, Any

import typer

from exhume.cli.beginning import command_began
from exhume.cli.output import attack_bar, print_json, say
from exhume.requests.attack import AttackCommand

if TYPE_CHECKING:
    from exhume.experiments.attacking import AttackedRun


def attack(request: AttackCommand, json: bool) -> None:
    """Recover the training data of RUN from its weights. Ctrl-C keeps what was found; run again to continue.

    Example: exhume attack runs/a

    Several processes share the rows of V: torchrun --nproc-per-node 2 -m exhume attack runs/a
    """
    from exhume.attacks.running.budget import Limits, ready_in_time
    from exhume.cli.ranks import started_ranks
    from exhume.experiments.attack_request import AttackRequest
    from exhume.experiments.attacking import attack_run
    from exhume.experiments.run import RunFolder

    limits = Limits(math.inf if request.budget is None else request.budget, since=command_began())
    with started_ranks() as ranks:
        with ready_in_time(limits, "an attack that is ready"):
            folder = RunFolder.existing(request.run)
            observation = folder.observation(request.model)
            if ranks.first and observation.features.note:
                say(observation.features.note, json)
            asked = AttackRequest.from_config(request.options())
            prepared = asked.prepare(folder, observation, request.seed, ranks, limits.since)
        with attack_bar(prepared.method.iterations, shown=ranks.first and request.pool == 1) as show:
            attacked = attack_run(folder, prepared, show, lambda line: say(line, as_json=True))
    if ranks.first:
        _say(attacked, json)
    if attacked.interrupted:
        raise typer.Exit(130)


def _say(attacked: "AttackedRun", json: bool) -> None:
    if attacked.start is not None:
        say(attacked.start, json)
    say_attack(attacked.summary, json)
    if json:
        print_json(attacked.summary)
    if attacked.interrupted:
        then = "continues" if attacked.continues else "begins again"
        say(f"interrupted: kept what was found so far; the same command {then}", as_json=True)


def _finest(resolution: dict[str, Any]) -> str:
    if "directions" in resolution:
        return f"{resolution['directions']:,} of the {resolution['of']:,} directions of the subspace"
    return f"{resolution['side']}x{resolution['side']} pixels ({resolution['frequencies']:,} frequencies)"


def _what_time_buys(starts: int, seconds: float) -> str:
    """For a search without a limit of time that gave up: with one it goes on until its end."""
    told = f"1 start of {seconds:.0f} s" if starts == 1 else f"{starts} starts of {seconds / starts:.0f} s each"
    return f"{told} did not explain the weights; with --budget 10m others follow, until one does or the time ends"


def say_attack(summary: dict[str, Any], json: bool) -> None:
    if summary.get("subspace"):
        say(summary["subspace"], json)
    unseen = summary["held_out_loss"]
    seen = "none held out" if unseen is None else f"{unseen:.1e} on {summary['held_out_rows']:,} held-out weights"
    say(
        f"{summary['outcome']}: {summary['samples_found']} candidates by {summary['method']}, "
        f"loss {summary['loss']:.1e}, {seen}, {summary['iterations']:,} iterations, "
        f"{summary['passes']:,.0f} passes, {summary['seconds']:.1f} s",
        json,
    )
    if summary.get("failure"):
        say(f"failed on the way: {summary['failure']}", json)
    if summary.get("resolution") is not None:
        say(f"trusted to {_finest(summary['resolution'])}: {summary['samples_trusted']} candidates", json)
    say(summary["advice"], json)
    if summary.get("starts"):
        say(_what_time_buys(summary["starts"], summary["seconds"]), json)
    if summary["method"] == "module-newton" and summary["outcome"] in ("spurious", "not_converged"):
        say("'exhume rank' asks less: which records were trained on; often possible where no input comes back.", json)
