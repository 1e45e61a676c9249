"""`exhume attack`: recover the training data from a run's observation, and from nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhume.cli.options import JsonOption, ModelOption, RunArgument, SeedOption
from exhume.cli.output import attack_bar, print_json, say
from exhume.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from exhume.attacks.subspace.attack import Source
    from exhume.experiments.attacking import AttackedRun
    from exhume.experiments.run import RunFolder
    from exhume.observation import Observation


def attack(
    run: RunArgument,
    method: Annotated[
        str,
        typer.Option(
            help="auto, split-newton, heavy-ball (as published), subspace, module-newton (networks), ntk or kkt (all "
            "layers), or informed (--known)."
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
    samples: Annotated[str, typer.Option(help="auto, or the number of samples to look for.")] = "auto",
    step: Annotated[float | None, typer.Option(help="heavy-ball: its step; default: as published for this d.")] = None,
    inactive_slope: Annotated[float, typer.Option(help="heavy-ball: slope where phi' is 0 (0.02: a surrogate).")] = 0,
    iterations: Annotated[int | None, typer.Option(help="At most so many iterations.")] = None,
    budget: Annotated[str | None, typer.Option(help="At most so long, e.g. 90s, 10m, 2h.")] = None,
    memory: Annotated[str | None, typer.Option(help="Hold V in memory only if it fits, e.g. 8G.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of the weights kept for the verdict.")] = 0.05,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    products: Annotated[
        str | None, typer.Option(help="bfloat16: products with V in half the memory, float32 at the end.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Polish in float64.")] = False,
    start_seeds: Annotated[
        int, typer.Option(min=1, help="Seeds to try where the initial head is known up to its seed.")
    ] = 1000,
    pool: Annotated[
        int, typer.Option(min=1, help="Attack from so many seeds, and keep what the runs agree on, best first.")
    ] = 1,
    model: ModelOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Recover the training data of RUN from its weights. Ctrl-C keeps what was found; run again to continue.

    Example: exhume attack runs/a

    Several processes share the rows of V: torchrun --nproc-per-node 2 -m exhume attack runs/a
    """
    from exhume.attacks.choice import choose_method, known_subspace
    from exhume.attacks.joining import own_device
    from exhume.attacks.loop import Limits
    from exhume.cli.ranks import started_ranks
    from exhume.experiments.attacking import AttackSettings, attack_run
    from exhume.experiments.image_prior import with_prior
    from exhume.experiments.pooling import pool_run
    from exhume.experiments.run import RunFolder
    from exhume.features.module import ModuleFeatures
    from exhume.values import parse_device, parse_dtype, parse_products, parse_samples

    with started_ranks() as ranks:
        settings = AttackSettings(
            samples=parse_samples(samples),
            seed=seed,
            limits=Limits(
                seconds=parse_duration(budget) if budget is not None else float("inf"),
                memory_bytes=parse_bytes(memory) if memory is not None else None,
            ),
            held_out=held_out,
            dtype=parse_dtype(dtype),
            products=parse_products(products),
            device=own_device(parse_device(device)),
            start_seeds=start_seeds,
            ranks=ranks,
        )
        folder = RunFolder.existing(run)
        observation = folder.observation(model)
        if ranks.first and isinstance(observation.features, ModuleFeatures) and observation.features.note:
            say(observation.features.note, json)
        observation, source = _with_subspace(observation, subspace)
        if method == "informed" or known is not None:
            observation = _with_known(observation, folder, known, method)
        chosen = choose_method(
            method,
            network=isinstance(observation.features, ModuleFeatures),
            known=known_subspace(observation),
            subspace=source,
            step_size=step,
            inactive_slope=inactive_slope,
            iterations=iterations,
            exact=exact,
        )
        chosen = with_prior(chosen, prior, spectrum, observation)
        if pool > 1:
            attacked = pool_run(folder, chosen, settings, pool, observation, lambda line: say(line, as_json=True))
        else:
            with attack_bar(chosen.iterations, shown=ranks.first) as show:
                attacked = attack_run(folder, chosen, settings, show, observation)
    if ranks.first:
        _tell(attacked, json)
    if attacked.interrupted:
        raise typer.Exit(130)


def _with_subspace(observation: "Observation", subspace: str | None) -> "tuple[Observation, Source | None]":
    """The observation with the subspace of a file, and where the subspace is to come from."""
    from exhume.attacks.subspace.file import read_subspace

    match subspace:
        case None | "first-layer" | "moments":
            return observation, subspace
    return replace(observation, subspace=read_subspace(Path(subspace), observation.d)), "given"


def _with_known(observation: "Observation", folder: "RunFolder", known: Path | None, method: str) -> "Observation":
    from exhume.errors import UsageError
    from exhume.experiments.known_samples import keep_known

    if method != "informed":
        raise UsageError(f"expected --known with --method informed, found {method}")
    return replace(observation, known=keep_known(folder, known, observation.d))


def _tell(attacked: "AttackedRun", json: bool) -> None:
    if attacked.start is not None:
        say(attacked.start, json)
    tell_attack(attacked.summary, json)
    if json:
        print_json(attacked.summary)
    if attacked.interrupted:
        say("interrupted: kept what was found so far; the same command continues", as_json=True)


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
    resolution = summary.get("resolution")
    if resolution is not None:
        side, found = resolution["side"], summary["samples_trusted"]
        say(f"trusted to {side}x{side} pixels ({resolution['frequencies']:,} frequencies): {found} candidates", json)
    say(summary["advice"], json)
