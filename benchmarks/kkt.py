"""The KKT attack on two-layer networks that come close to its conditions: how many images can be recognised.

    python benchmarks/kkt.py [--data-dir DIR] [--side 8] [--seconds 20] [--seeds 3]

CIFAR-10. No weight from before training is known, and n is not told. An image is recognised where a candidate has a
|cosine| above 0.9 with it. A Markdown table: training seconds, images recognised for each seed, and as many images of
the same classes that were not trained on, of which those that are "recognised" are so by chance.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.tangent.newton import KktAttack
from exhume.attacks.tangent.span import Rule
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume_papers.victims.losses import LossName
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

TEN = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
TWO = "frog,truck"
LARGE_MARGIN = DescentRecipe(until=1e-6, growing=True)
DECAYED = DescentRecipe(steps=20_000, weight_decay=0.02, until=1e-30)


@dataclass(frozen=True)
class Case:
    """`first_scale`: the size of the first layer's start, in units of the usual one."""

    name: str
    classes: str
    samples: int
    loss: LossName
    first_scale: float
    recipe: DescentRecipe
    rules: tuple[Rule, ...]


CASES = (
    Case("ten classes, large margin", TEN, 20, "cross-entropy", 1e-3, LARGE_MARGIN, ("free", "margin")),
    Case("ten classes, large margin", TEN, 40, "cross-entropy", 1e-3, LARGE_MARGIN, ("free",)),
    Case("two classes, large margin", TWO, 6, "logistic", 0.05, LARGE_MARGIN, ("free", "margin")),
    Case("two classes, weight decay", TWO, 6, "logistic", 1.0, DECAYED, ("free",)),
    Case("ten classes, weight decay", TEN, 20, "cross-entropy", 1.0, DECAYED, ("free",)),
)


def images(case: Case, samples: int, side: int, data_dir: Path | None) -> Dataset:
    classes = tuple(case.classes.split(","))
    return load(DataConfig.parse(name="cifar10", samples=samples, side=side, classes=classes, data_dir=data_dir))


def controls(case: Case, side: int, data_dir: Path | None) -> Tensor:
    """The next images of each class."""
    each = case.samples // len(case.classes.split(","))
    return torch.cat([block[each:] for block in images(case, 2 * case.samples, side, data_dir).inputs.split(2 * each)])


def measure(case: Case, rule: Rule, seed: int, options: argparse.Namespace) -> tuple[int, int, float]:
    """The images recognised, the controls recognised, and the seconds that training took."""
    data = images(case, case.samples, options.side, options.data_dir)
    config = TwoLayerConfig(width=300, loss=case.loss, first_scale=case.first_scale, recipe=case.recipe, seed=seed)
    began = time.perf_counter()
    trained = train_two_layer(config, data).observation
    training = time.perf_counter() - began
    seen = replace(trained, initial_rows=None).knowing(None)
    found = run_attack(seen, KktAttack(rule=rule), seed=seed, limits=Limits(options.seconds)).reconstruction
    others = controls(case, options.side, options.data_dir)
    return recognised(data.inputs, found.candidates), recognised(others, found.candidates), training


def recognised(samples: Tensor, candidates: Tensor) -> int:
    cosines = torch.cosine_similarity(samples[:, None].double(), candidates[None].double(), dim=2)
    return int((cosines.abs().max(dim=1).values > 0.9).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--side", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("| victim | n | coefficients | training, s | recognised, by seed | controls |\n" + "| --- " * 6 + "|")
    for case in CASES:
        for rule in case.rules:
            found = [measure(case, rule, seed, options) for seed in range(options.seeds)]
            hits, chance = (" ".join(str(line[place]) for line in found) for place in (0, 1))
            trained = statistics.median(line[2] for line in found)
            print(f"| {case.name} | {case.samples} | {rule} | {trained:.1f} | {hits} | {chance} |", flush=True)


if __name__ == "__main__":
    main()
