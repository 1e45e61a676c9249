"""`exhume train`: make a victim, so that an attack has something to be measured on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from exhume.cli.option_groups import DataOptions, flattened
from exhume.cli.options import JsonOption, SeedOption
from exhume_papers.cli.making import make_run
from exhume_papers.cli.training_options import PrivacyOptions, TrainingOptions

if TYPE_CHECKING:
    from typer import Context
else:  # what commands are handed is of the base, which typer vendors under a private name
    Context = typer.Context.__bases__[0]

FACTORY = "package.module:factory"


class VictimGroup(typer.core.TyperGroup):
    """Any name with a colon is the command for a user's own model."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, FACTORY if ":" in cmd_name else cmd_name)


app = typer.Typer(
    cls=VictimGroup,
    rich_markup_mode=None,
    help="Train a victim and write a run folder. Networks that are interrupted go on from where they were.\n\n"
    "Example: exhume train rf --data faces --samples 20 --ratio 4 --out runs/a",
)

OutOption = Annotated[Path, typer.Option(help="The run folder to make.")]
RatioOption = Annotated[float | None, typer.Option(help="p/(dn): weights of the head for each number in the data.")]
ParamsOption = Annotated[int | None, typer.Option(help="p itself, instead of --ratio.")]
ActivationOption = Annotated[str, typer.Option(help="relu, tanh, relu+tanh, gelu, sigmoid, softplus, erf or linear.")]
DefenceOption = Annotated[
    str | None,
    typer.Option(
        help="What is done to the head before it is published, e.g. int8 or prune50,int8: fp16, bf16, int8, "
        "int8-row, pruneP, obsP (P %), noiseX."
    ),
]


@app.command("rf")
@flattened
def random_features(
    data: DataOptions,
    privacy: PrivacyOptions,
    out: OutOption,
    ratio: RatioOption = None,
    params: ParamsOption = None,
    activation: ActivationOption = "relu",
    bias: Annotated[float, typer.Option(help="Standard deviation of the features' bias; 0: none.")] = 0.0,
    fit: Annotated[str, typer.Option(help="min-norm, ridge or logistic.")] = "min-norm",
    ridge: Annotated[float | None, typer.Option(help="The ridge penalty lambda; implies --fit ridge.")] = None,
    steps: Annotated[int, typer.Option(help="Gradient steps of the logistic fit.")] = 1_000_000,
    step_size: Annotated[float | None, typer.Option(help="Its step; default: 1 / the largest curvature.")] = None,
    features: Annotated[str, typer.Option(help="How V is kept: its seed, or a file that is memory-mapped.")] = "seed",
    defence: DefenceOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train random-features regression f(x) = phi(Vx).theta and write a run folder.

    Example: exhume train rf --data sphere --dim 100 --samples 20 --ratio 3 --activation relu --seed 0 --out runs/a
    """
    from exhume.experiments.run import check_new
    from exhume.validation import parse_fields
    from exhume.values import resolve_params
    from exhume_papers.victims.random_features import RandomFeaturesConfig

    check_new(out)
    loaded = data.load(seed)
    config = parse_fields(
        RandomFeaturesConfig,
        params=resolve_params(ratio, params, loaded.n, loaded.d),
        activation=activation,
        bias=bias,
        fit="ridge" if ridge is not None and fit == "min-norm" else fit,
        ridge=ridge,
        steps=steps,
        step_size=step_size,
        features=features,
        privacy=privacy.fields(),
        seed=seed,
    )
    make_run(out, loaded, config, defence, json)


@app.command("glm")
@flattened
def generalised_linear(
    data: DataOptions,
    out: OutOption,
    loss: Annotated[str, typer.Option(help="square or logistic (labels -1 and +1).")] = "logistic",
    penalty: Annotated[float, typer.Option(help="lambda of (lambda / 2) ||theta||^2; the intercept has none.")] = 1e-3,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Fit a generalised linear model f(x) = theta.x + b to its minimum and write a run folder.

    Example: exhume train glm --data faces --samples 20 --loss square --out runs/g
    """
    from exhume.experiments.run import check_new
    from exhume_papers.victims.glm import GlmConfig

    check_new(out)
    config = GlmConfig.parse(loss=loss, penalty=penalty, seed=seed)
    make_run(out, data.load(seed), config, None, json)


@app.command("two-layer")
@flattened
def two_layer(
    data: DataOptions,
    training: TrainingOptions,
    privacy: PrivacyOptions,
    out: OutOption,
    width: Annotated[int | None, typer.Option(min=1, help="h, the hidden units; p = k h.")] = None,
    ratio: RatioOption = None,
    params: ParamsOption = None,
    activation: ActivationOption = "relu",
    knows_first_layer: Annotated[
        bool, typer.Option("--knows-first-layer", help="The attacker knows the first layer's initial weights as well.")
    ] = False,
    first_scale: Annotated[
        float, typer.Option(help="Size of the first layer's initial weights, over the usual one.")
    ] = 1.0,
    defence: DefenceOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train both layers of f(x) = W2 phi(W1 x) and write a run folder.

    Example: exhume train two-layer --data faces --samples 10 --ratio 4 --out runs/b
    """
    from exhume.experiments.run import check_new
    from exhume.values import resolve_width
    from exhume_papers.victims.targets import default_outputs
    from exhume_papers.victims.two_layer import TwoLayerConfig

    check_new(out)
    shared, loaded = training.fields(seed, privacy.fields()), data.load(seed)
    outputs = shared["outputs"] or default_outputs(loaded.dataset, shared["loss"])
    units = resolve_width(width, ratio, params, loaded.n, loaded.d, outputs)
    config = TwoLayerConfig.parse(
        **shared,
        width=units,
        activation=activation,
        knows_first_layer=knows_first_layer,
        first_scale=first_scale,
    )
    make_run(out, loaded, config, defence, json)


@app.command("resnet")
@flattened
def resnet(
    data: DataOptions,
    training: TrainingOptions,
    privacy: PrivacyOptions,
    out: OutOption,
    width: Annotated[int | None, typer.Option(min=1, help="Channels of all convolutions.")] = None,
    ratio: RatioOption = None,
    params: ParamsOption = None,
    kernel: Annotated[
        int | None, typer.Option(min=1, help="Of the first convolution; default: one that leaves 7x7 positions.")
    ] = None,
    defence: DefenceOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train a residual network without batch norm and pooling, and write a run folder.

    Example: exhume train resnet --data cifar10 --side 16 --samples 4 --ratio 4 --until 1e-7 --out runs/c
    """
    from exhume.experiments.run import check_new
    from exhume.networks.resnet import POSITIONS
    from exhume.values import resolve_width
    from exhume_papers.victims.network_plans import ResNetConfig, image_side
    from exhume_papers.victims.targets import default_outputs

    check_new(out)
    shared, loaded = training.fields(seed, privacy.fields()), data.load(seed)
    outputs = shared["outputs"] or default_outputs(loaded.dataset, shared["loss"])
    padded = image_side(loaded.dataset, "a ResNet")[1] + 2 * ResNetConfig.model_fields["padding"].default
    positions = POSITIONS if kernel is None else max(1, padded - kernel + 1)
    channels = resolve_width(width, ratio, params, loaded.n, loaded.d, outputs * positions**2)
    make_run(out, loaded, ResNetConfig.parse(**shared, channels=channels, kernel=kernel), defence, json)


@app.command("vit")
@flattened
def vision_transformer(
    data: DataOptions,
    training: TrainingOptions,
    privacy: PrivacyOptions,
    out: OutOption,
    embedding: Annotated[int | None, typer.Option(min=1, help="Numbers of a token; the head reads all tokens.")] = None,
    ratio: RatioOption = None,
    params: ParamsOption = None,
    patch: Annotated[int, typer.Option(min=1, help="Pixels a side of a patch.")] = 4,
    depth: Annotated[int, typer.Option(min=1, help="Transformer layers.")] = 2,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads.")] = 2,
    defence: DefenceOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train a Vision Transformer whose head reads all tokens, and write a run folder.

    Example: exhume train vit --data cifar10 --side 16 --samples 4 --ratio 4 --until 1e-7 --out runs/d
    """
    from exhume.experiments.run import check_new
    from exhume.values import resolve_width
    from exhume_papers.victims.network_plans import VisionTransformerConfig, image_side
    from exhume_papers.victims.targets import default_outputs

    check_new(out)
    shared, loaded = training.fields(seed, privacy.fields()), data.load(seed)
    outputs = shared["outputs"] or default_outputs(loaded.dataset, shared["loss"])
    tokens = max(1, image_side(loaded.dataset, "a Vision Transformer")[1] // patch) ** 2
    size = resolve_width(embedding, ratio, params, loaded.n, loaded.d, outputs * tokens, multiple=heads)
    config = VisionTransformerConfig.parse(**shared, embedding=size, patch=patch, depth=depth, heads=heads)
    make_run(out, loaded, config, defence, json)


@app.command(FACTORY)
@flattened
def factory(
    context: Context,
    data: DataOptions,
    training: TrainingOptions,
    privacy: PrivacyOptions,
    out: OutOption,
    head: Annotated[
        str | None, typer.Option(help="The linear layer that is observed; default: the last one that is called.")
    ] = None,
    image_shape: Annotated[
        str | None, typer.Option(help="How the model sees a row, e.g. 3,32,32 or flat; default: as the images are.")
    ] = None,
    defence: DefenceOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train your own torch.nn.Module, which a function without arguments returns, and write a run folder.

    Example: exhume train my_models:small --data faces --samples 10 --head fc --out runs/e
    """
    from exhume.experiments.run import check_new
    from exhume.values import parse_shape
    from exhume_papers.victims.network_plans import FactoryConfig

    check_new(out)
    shared, loaded = training.fields(seed, privacy.fields()), data.load(seed)
    shape = parse_shape(image_shape, loaded.d)
    config = FactoryConfig.parse(**shared, factory=str(context.info_name), head=head, input_shape=shape)
    make_run(out, loaded, config, defence, json, f" --model {config.factory}")
