"""`exhume attack`: recover the training data from a run's observation, and from nothing else."""

from typing import Annotated, Any

import typer

from exhume.cli.options import JsonOption, ModelOption, RunArgument, SeedOption, parse_bytes, parse_duration
from exhume.cli.output import attack_bar, print_json, say


def attack(
    run: RunArgument,
    method: Annotated[
        str, typer.Option(help="auto, split-newton, heavy-ball (as published), or module-newton (networks).")
    ] = "auto",
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
    model: ModelOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Recover the training data of RUN from its weights. Ctrl-C keeps what was found; run again to continue.

    Example: exhume attack runs/a
    """
    from exhume.attacks.choice import choose_method
    from exhume.attacks.loop import Limits
    from exhume.cli.values import parse_device, parse_dtype, parse_products, parse_samples
    from exhume.experiments.attacking import AttackSettings, attack_run
    from exhume.experiments.run import RunFolder
    from exhume.features.module import ModuleFeatures

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
        device=parse_device(device),
    )
    folder = RunFolder.existing(run)
    observation = folder.observation(model)
    chosen = choose_method(
        method,
        network=isinstance(observation.features, ModuleFeatures),
        step_size=step,
        inactive_slope=inactive_slope,
        iterations=iterations,
        exact=exact,
    )
    with attack_bar(chosen.iterations) as show:
        attacked = attack_run(folder, chosen, settings, show, observation)
    tell_attack(attacked.summary, json)
    if json:
        print_json(attacked.summary)
    if attacked.interrupted:
        say("interrupted: kept what was found so far; the same command continues", as_json=True)
        raise typer.Exit(130)


def tell_attack(summary: dict[str, Any], json: bool) -> None:
    unseen = summary["held_out_loss"]
    seen = "none held out" if unseen is None else f"{unseen:.1e} on {summary['held_out_rows']:,} held-out weights"
    say(
        f"{summary['outcome']}: {summary['samples_found']} candidates by {summary['method']}, "
        f"loss {summary['loss']:.1e}, {seen}, {summary['iterations']:,} iterations, "
        f"{summary['passes']:,.0f} passes, {summary['seconds']:.1f} s",
        json,
    )
    say(summary["advice"], json)
