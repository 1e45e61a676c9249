"""`exhume train`: make a victim, so that an attack has something to be measured on."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.options import JsonOption, SeedOption
from exhume.cli.output import print_json, say

app = typer.Typer(
    rich_markup_mode=None,
    help="Train a victim and write a run folder.\n\n"
    "Example: exhume train rf --data faces --samples 20 --ratio 4 --out runs/a",
)


@app.command("rf")
def random_features(
    data: Annotated[str, typer.Option(help="sphere, faces, cifar10, tiny-imagenet, or a folder of images.")],
    samples: Annotated[int, typer.Option(help="n, the number of training samples.")],
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    ratio: Annotated[float | None, typer.Option(help="p/(dn): parameters for each number in the data.")] = None,
    params: Annotated[int | None, typer.Option(help="p itself, instead of --ratio.")] = None,
    activation: Annotated[
        str, typer.Option(help="relu, tanh, relu+tanh, gelu, sigmoid, softplus, erf or linear.")
    ] = "relu",
    bias: Annotated[float, typer.Option(help="Standard deviation of the features' bias; 0: none.")] = 0.0,
    fit: Annotated[str, typer.Option(help="min-norm, ridge or logistic.")] = "min-norm",
    ridge: Annotated[float | None, typer.Option(help="The ridge penalty lambda; implies --fit ridge.")] = None,
    steps: Annotated[int, typer.Option(help="Gradient steps of the logistic fit.")] = 1_000_000,
    step_size: Annotated[float | None, typer.Option(help="Its step; default: 1 / the largest curvature.")] = None,
    features: Annotated[str, typer.Option(help="How V is kept: its seed, or a file that is memory-mapped.")] = "seed",
    dim: Annotated[int | None, typer.Option(help="d, for the sphere.")] = None,
    subspace: Annotated[int | None, typer.Option(help="Sphere: draw inside a random subspace of r dimensions.")] = None,
    labels: Annotated[str | None, typer.Option(help="Sphere: linear (noisy) or sign.")] = None,
    noise: Annotated[float | None, typer.Option(help="Sphere: variance of the label noise (0.25).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder with cifar-10-batches-bin/ and the like.")] = None,
    classes: Annotated[str | None, typer.Option(help="Comma-separated, e.g. frog,truck.")] = None,
    per_class: Annotated[str | None, typer.Option(help="Comma-separated counts; default: an even split.")] = None,
    side: Annotated[int | None, typer.Option(help="Average images down to side x side pixels.")] = None,
    standardise: Annotated[
        str | None, typer.Option(help="subset (one mean and std), channels, cifar10-split or none.")
    ] = None,
    norm: Annotated[str | None, typer.Option(help="sqrt-d: bring rows to norm sqrt(d); keep.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train random-features regression f(x) = phi(Vx).theta and write a run folder.

    Example: exhume train rf --data sphere --dim 100 --samples 20 --ratio 3 --activation relu --seed 0 --out runs/a
    """
    from exhume import seeds
    from exhume.cli.values import parse_counts, parse_names, resolve_params
    from exhume.data.config import DataConfig
    from exhume.data.load import load
    from exhume.experiments.run import check_new, train_run
    from exhume.validation import parse_fields
    from exhume.victims.random_features import RandomFeaturesConfig

    check_new(out)
    data_config = DataConfig.parse(
        name=data,
        samples=samples,
        dim=dim,
        subspace=subspace,
        label_rule=labels,
        noise=noise,
        data_dir=data_dir,
        classes=parse_names(classes),
        per_class=parse_counts(per_class),
        side=side,
        standardise=standardise,
        norm=norm,
        seed=seeds.derive(seed, "data"),
        dtype=dtype,
    )
    dataset = load(data_config)
    config = parse_fields(
        RandomFeaturesConfig,
        params=resolve_params(ratio, params, *dataset.inputs.shape),
        activation=activation,
        bias=bias,
        fit="ridge" if ridge is not None and fit == "min-norm" else fit,
        ridge=ridge,
        steps=steps,
        step_size=step_size,
        features=features,
        seed=seed,
    )
    say(dataset.description, json)
    summary = train_run(out, data_config, config, dataset)
    say(
        f"trained {summary['p']:,} parameters on n = {summary['n']} samples of dimension d = {summary['d']} "
        f"(p/(dn) = {summary['ratio']:.3g}), training loss {summary['training_loss']:.2g}",
        json,
    )
    say(f"wrote {out}; next: exhume attack {out}", json)
    if json:
        print_json(summary)
