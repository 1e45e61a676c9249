"""Which training recipes keep the change of the weights in the span of the features?

    python benchmarks/recipes.py [--data cifar10 --data-dir FOLDER] [--width 1000] [--samples 10] [--network resnet]
                                 [--attack SECONDS]

A small network (two-layer, or --network resnet) is trained on real images of 8 x 8 pixels (16 x 16 for the ResNet) with
each recipe. Columns of the table, which is in Markdown: the share of the head's change that lies outside the span of
the trained features, which is the floor of an attack's loss (for W(T) - W(0), for W(T) - c W(0) with the c that the
recipe's weight decay leaves, and with the best c), the same for the first layer and the span of its inputs, and the
largest angle between that span and the row space of the first layer's change. It takes about a minute on one core.
With --attack (two-layer only) also the error of an attack that is not told n and stops after so many seconds.
"""

import argparse
import time
from pathlib import Path

import torch
from span_check import check_span
from torch import nn

from exhume import seeds
from exhume.activations import activation
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.features.rows import hold
from exhume.metrics.errors import reconstruction_error
from exhume_papers.networks.resnet import ResNet
from exhume_papers.networks.two_layer import TwoLayer
from exhume_papers.victims.descent import train_module
from exhume_papers.victims.losses import LossName
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.targets import default_outputs, make_targets
from exhume_papers.victims.two_layer import TwoLayerConfig, draw_first_layer, draw_head, train_two_layer

COLUMNS = (
    "recipe", "loss", "steps", "step", "head outside", "with the recipe's c", "with the best c", "first layer outside",
    "with the best c", "its angle", "s",
)  # fmt: skip
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECIPES: tuple[tuple[str, LossName, DescentRecipe], ...] = (
    ("gd", "square", DescentRecipe()),
    ("gd, a tenth of the step", "square", DescentRecipe()),
    ("gd, momentum 0.9", "square", DescentRecipe(momentum=0.9)),
    ("gd, momentum 0.9, 10 x the step", "square", DescentRecipe(momentum=0.9)),
    ("sgd, half batches", "square", DescentRecipe(method="sgd")),
    ("sgd, half batches, momentum 0.9", "square", DescentRecipe(method="sgd", momentum=0.9)),
    ("gd, weight decay 0.01", "square", DescentRecipe(weight_decay=0.01, steps=1000)),
    ("gd, cross-entropy", "cross-entropy", DescentRecipe(until=1e-2)),
    ("adam 1e-3", "square", DescentRecipe(method="adam")),
    ("adam 1e-4", "square", DescentRecipe(method="adam", step_size=1e-4)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("cifar10", "faces"), default="faces")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--network", choices=("two-layer", "resnet"), default="two-layer")
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attack", type=float, metavar="SECONDS")
    options = parser.parse_args()
    if options.attack and options.network != "two-layer":
        parser.error("expected --network two-layer with --attack")
    data = load_images(options.data, options.data_dir, options.samples, 8 if options.network == "two-layer" else 16)
    print(data.description)
    columns = (*COLUMNS, *(("rho", "found", "outcome") if options.attack else ()))
    print(f"| {' | '.join(columns)} |\n| {' | '.join(['---'] * len(columns))} |")
    usual = 0.0
    for name, loss, recipe in RECIPES:
        if loss == "cross-entropy" and len(data.class_names) < 2:
            continue
        if "tenth" in name:
            recipe = DescentRecipe(step_size=usual / 10)
        if "10 x" in name:
            recipe = DescentRecipe(step_size=usual * 10, momentum=0.9)
        usual = line(name, loss, recipe, data, options)


def load_images(name: str, folder: Path | None, samples: int, side: int) -> Dataset:
    if name == "faces":
        return load(DataConfig.parse(name="faces", samples=samples, norm="sqrt-d"))
    return load(DataConfig.parse(name=name, samples=samples, side=side, classes=CLASSES[:samples], data_dir=folder))


def build(network: str, width: int, data: Dataset, outputs: int, seed: int) -> nn.Module:
    if network == "resnet":
        assert data.image_shape is not None
        colours, side, _ = data.image_shape
        channels = max(1, width // 49)
        return ResNet(side, channels, outputs, seeds.generator(seed, "network"), colours=colours)
    config = TwoLayerConfig(width=width, seed=seed)
    first = hold(draw_first_layer(config, data.inputs.shape[1])).values
    return TwoLayer(first, draw_head(config, outputs, torch.float32), activation("relu").value)


def line(name: str, loss: LossName, recipe: DescentRecipe, data: Dataset, options: argparse.Namespace) -> float:
    network, width, seed = options.network, options.width, options.seed
    began = time.monotonic()
    outputs = default_outputs(data, loss)
    targets = make_targets(data, loss, outputs)
    trained = train_module(build(network, width, data, outputs, seed), data.inputs, targets, loss, recipe)
    seconds = time.monotonic() - began
    check = check_span(trained.model, trained.initial, data.inputs)
    left = {key: trained.scale * value for key, value in trained.initial.items()}
    decayed = check_span(trained.model, left, data.inputs).head
    went = trained.descent
    head, first = check.head, check.first
    shares = (head.outside, decayed.outside, head.outside_rescaled, first.outside, first.outside_rescaled)
    told = (f"{went.loss:.1e}", f"{went.steps:,}", f"{went.step_size:.1e}", *(f"{share:.1e}" for share in shares))
    found = attacked(loss, recipe, data, options) if options.attack else ()
    print(f"| {' | '.join([name, *told, f'{first.largest_angle:.2f}', f'{seconds:.1f}', *found])} |", flush=True)
    return went.step_size


def attacked(loss: LossName, recipe: DescentRecipe, data: Dataset, options: argparse.Namespace) -> tuple[str, ...]:
    """The same network, whose features are those of its trained first layer."""
    config = TwoLayerConfig(width=options.width, seed=options.seed, loss=loss, recipe=recipe)
    seen = train_two_layer(config, data).observation.knowing(None)
    found = run_attack(seen, SplitNewton(), seed=options.seed, limits=Limits(options.attack)).reconstruction
    error = reconstruction_error(data.inputs, found.candidates)
    return f"{error:.2g}", str(len(found.candidates)), found.outcome.value


if __name__ == "__main__":
    main()
