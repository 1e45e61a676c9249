"""`exhume attack`: recover the training data from a run's observation, and from nothing else."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhume.cli.options import JsonOption, ModelOption, RunArgument, SeedOption
from exhume.cli.output import attack_bar, print_json, say

if TYPE_CHECKING:
    from exhume.experiments.attacking import AttackedRun


def attack(
    run: RunArgument,
    method: Annotated[
        str,
        typer.Option(
            help="auto, silent-units (a dense layer before and after), split-newton, heavy-ball (as published), "
            "subspace, module-newton (networks), ntk or kkt (all layers), or informed (--known)."
        ),
    ] = "auto",
    subspace: Annotated[
        str | None, typer.Option(help="The data's subspace, from: first-layer, moments, or a file with its basis.")
    ] = None,
    known: Annotated[
        Path | None, typer.Option(help="informed: the known samples; default: known.safetensors of the run.")
    ] = None,
    prior: Annotated[
        str, typer.Option(help="image: low-resolution images where there are too few weights for whole ones.")
    ] = "none",
    spectrum: Annotated[
        str | None, typer.Option(help="--prior image: a folder of public images, or a file; default: 1/f.")
    ] = None,
    resolution: Annotated[
        int | None, typer.Option(help="--prior image: nothing finer than so many of the lowest frequencies.")
    ] = None,
    samples: Annotated[str, typer.Option(help="auto, or the number of samples to look for.")] = "auto",
    step: Annotated[float | None, typer.Option(help="heavy-ball: its step; default: as published for this d.")] = None,
    inactive_slope: Annotated[float, typer.Option(help="heavy-ball: slope where phi' is 0 (0.02: a surrogate).")] = 0,
    gradients_at: Annotated[
        str | None,
        typer.Option(help="ntk: gradients at: halfway (default), trained (as published), initial."),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="kkt: coefficients free (default), or margin: not negative, as published.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="At most so many iterations.")] = None,
    budget: Annotated[str | None, typer.Option(help="At most so long, e.g. 90s, 10m, 2h.")] = None,
    memory: Annotated[
        str | None, typer.Option(help="At most so much for the whole process, e.g. 8G: fewer rows of V, or V streamed.")
    ] = None,
    held_out: Annotated[float, typer.Option(help="Share of the weights kept for the verdict.")] = 0.05,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    products: Annotated[
        str | None, typer.Option(help="bfloat16: the search reads a coarse copy of V, the end the exact one.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Polish in float64.")] = False,
    start_seeds: Annotated[
        int, typer.Option(min=1, help="Seeds to try where the initial head is known up to its seed.")
    ] = 1000,
    pool: Annotated[
        int, typer.Option(min=1, help="Attack from so many seeds, and keep what the runs agree on, best first.")
    ] = 1,
    hyperparameters: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: any other hyperparameter of the method.")
    ] = None,
    model: ModelOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Recover the training data of RUN from its weights. Ctrl-C keeps what was found; run again to continue.

    Example: exhume attack runs/a

    Several processes share the rows of V: torchrun --nproc-per-node 2 -m exhume attack runs/a
    """
    from exhume.cli.ranks import started_ranks
    from exhume.experiments.attack_request import AttackRequest
    from exhume.experiments.attacking import attack_run
    from exhume.experiments.run import RunFolder
    from exhume.validation import parse_fields
    from exhume.values import parse_samples

    with started_ranks() as ranks:
        request = parse_fields(
            AttackRequest,
            method=method,
            subspace=subspace,
            known=None if known is None else str(known),
            prior=prior,
            spectrum=spectrum,
            resolution=resolution,
            samples=parse_samples(samples) or "auto",
            step=step,
            inactive_slope=inactive_slope,
            gradients_at=gradients_at,
            rule=rule,
            iterations=iterations,
            budget=budget,
            memory=memory,
            held_out=held_out,
            device=device,
            dtype=dtype,
            products=products,
            exact=exact,
            start_seeds=start_seeds,
            pool=pool,
            set=tuple(hyperparameters or ()),
        )
        folder = RunFolder.existing(run)
        observation = folder.observation(model)
        if ranks.first and observation.features.note:
            say(observation.features.note, json)
        prepared = request.prepare(folder, observation, seed, ranks)
        with attack_bar(prepared.method.iterations, shown=ranks.first and pool == 1) as show:
            attacked = attack_run(folder, prepared, show, lambda line: say(line, as_json=True))
    if ranks.first:
        _tell(attacked, json)
    if attacked.interrupted:
        raise typer.Exit(130)


def _tell(attacked: "AttackedRun", json: bool) -> None:
    if attacked.start is not None:
        say(attacked.start, json)
    tell_attack(attacked.summary, json)
    if json:
        print_json(attacked.summary)
    if attacked.interrupted:
        then = "continues" if attacked.continues else "begins again"
        say(f"interrupted: kept what was found so far; the same command {then}", as_json=True)


def _finest(resolution: dict[str, Any]) -> str:
    if "directions" in resolution:
        return f"{resolution['directions']:,} of the {resolution['of']:,} directions of the subspace"
    return f"{resolution['side']}x{resolution['side']} pixels ({resolution['frequencies']:,} frequencies)"


def tell_attack(summary: dict[str, Any], json: bool) -> None:
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
    if summary["method"] == "module-newton" and summary["outcome"] in ("spurious", "not_converged"):
        say("'exhume rank' asks less: which records were trained on; often possible where no input comes back.", json)
