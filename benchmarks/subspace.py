"""The subspace-aware attack against that in the whole space, on trained two-layer networks.

    python benchmarks/subspace.py --out FOLDER [--data-dir FOLDER] [--whole] [--seeds 5]

Markdown tables; every trial is kept in FOLDER/trials.jsonl, so that a run that was stopped goes on where it was.

- synthetic data in r = 10 of d = 200 dimensions, n = 20: the first layer's change is known. About 5 s a trial on one
  core. With `--whole` also the attack that does not know it, at larger widths: 3 minutes per trial.
- with `--data-dir`: CIFAR-10, one image a class, 10 outputs, at p_L = 0.1 dn and less, against a first layer that was
  published without its start or frozen (2 seeds, 2 minutes each); and what each recipe leaves.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from trials import Trials

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.attacks.subspace.first_layer import first_layer_spectrum
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.metrics.errors import evaluate
from exhume.observation import Observation
from exhume_papers.studies.principal_angles import principal_angles
from exhume_papers.victims.losses import LossName
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SUBSPACE_WIDTHS, WHOLE_WIDTHS = (400, 800, 1600), (4000, 8000, 16000)
WHOLE_SECONDS = 180.0
CIFAR_WIDTHS = (77, 154, 307)
RECIPES: dict[str, tuple[LossName, DescentRecipe]] = {
    "gradient descent": ("square", DescentRecipe()),
    "momentum 0.9": ("square", DescentRecipe(momentum=0.9)),
    "sgd, half batches": ("square", DescentRecipe(method="sgd", until=1e-6)),
    "weight decay 0.001": ("square", DescentRecipe(weight_decay=0.001, steps=1000)),
    "weight decay 0.01": ("square", DescentRecipe(weight_decay=0.01, steps=1000)),
    "cross-entropy": ("cross-entropy", DescentRecipe(until=1e-2)),
    "Adam": ("square", DescentRecipe(method="adam", until=1e-6)),
}


def attack(observation: Observation, data: Dataset, method: AnyMethod, seconds: float) -> dict[str, Any]:
    """n is not told."""
    found = run_attack(observation.knowing(None), method, limits=Limits(seconds)).reconstruction
    score = evaluate(data.inputs, found.candidates)
    return {
        "outcome": found.outcome.value,
        "found": len(found.candidates),
        "rank": found.facts.get("subspace_rank"),
        "note": found.facts.get("subspace"),
        "rho": score.error,
        "signed": score.signed_error,
        "held_out_loss": found.held_out_loss,
        "seconds": round(found.seconds, 1),
    }


def largest_angle(observation: Observation, data: Dataset) -> float | None:
    if observation.initial_rows is None:
        return None
    found = first_layer_spectrum(observation.ridge.rows, observation.initial_rows)
    values = torch.linalg.svd(data.inputs.double(), full_matrices=False)
    rank = int(torch.linalg.matrix_rank(data.inputs.double(), rtol=1e-5))
    truth = values.Vh[:rank].T
    return float(principal_angles(found.subspace.basis, truth)[0])


def trial(data: Dataset, config: TwoLayerConfig, seconds: float = 1e9) -> dict[str, Any]:
    observation = train_two_layer(config, data).observation
    known = observation.initial_rows is not None
    method: AnyMethod = SubspaceAttack("first-layer", insist=False) if known else SplitNewton()
    return {"angle": largest_angle(observation, data), **attack(observation, data, method, seconds)}


def synthetic(trials: Trials, seeds: int, whole: bool) -> None:
    print("Two-layer ReLU network, data in r = 10 of d = 200 dimensions, n = 20, one output; n not told.\n")
    print("| labels | first layer | width h | p/(dn) | rank | largest angle | rho of each seed | rho < 0.01 |")
    print("| --- " * 8 + "|")
    settings = [(rule, True, width) for rule in ("sign", "linear") for width in SUBSPACE_WIDTHS]
    settings += [("sign", False, width) for width in WHOLE_WIDTHS] if whole else []
    for rule, known, width in settings:
        found = [_synthetic(trials, rule, known, width, seed) for seed in range(seeds)]
        ranks = "-" if not known else ", ".join(sorted({str(one["rank"]) for one in found}))
        angle = "-" if not known else f"{max(one['angle'] for one in found):.0e}"
        errors = " ".join(f"{one['rho']:.4f}" for one in found)
        good = sum(one["rho"] < 0.01 for one in found)
        print(
            f"| {rule} | {'known' if known else 'not known'} | {width} | {width / 4000:g} | {ranks} | {angle} "
            f"| {errors} | {good} of {seeds} |",
            flush=True,
        )


def _synthetic(trials: Trials, rule: str, known: bool, width: int, seed: int) -> dict[str, Any]:
    def run() -> dict[str, Any]:
        data = load(DataConfig.parse(name="sphere", samples=20, dim=200, subspace=10, label_rule=rule, seed=seed))
        # the attack in the whole space is given the better features
        config = TwoLayerConfig.parse(
            width=width, seed=seed, knows_first_layer=known, features_at="trained" if known else "midpoint"
        )
        return trial(data, config, 1e9 if known else WHOLE_SECONDS)

    description = {"data": "sphere", "labels": rule, "known": known, "width": width, "seed": seed}
    return dict(trials(description, run))


def cifar(trials: Trials, data_dir: Path, seeds: int) -> None:
    print("\nTwo-layer ReLU network, CIFAR-10, one image a class, n = 10, 10 outputs, d = 3072; n not told.\n")
    print("| first layer | width h | p_L/(dn) | rank | largest angle | rho of each seed | found | outcome |")
    print("| --- " * 8 + "|")
    data = load(DataConfig(name="cifar10", samples=10, classes=CLASSES, data_dir=data_dir))
    hidden = [("not known", CIFAR_WIDTHS[-1]), ("frozen", CIFAR_WIDTHS[-1]), ("frozen", 3072), ("frozen", 6144)]
    for layer, width in [("known", width) for width in CIFAR_WIDTHS] + hidden:
        found, known = [], layer == "known"
        for seed in range(seeds if known else min(seeds, 2)):
            config = TwoLayerConfig(width=width, seed=seed, knows_first_layer=known, freeze=layer == "frozen")
            description = {"data": "cifar10", "known": known, "width": width, "seed": seed}
            description |= {"frozen": True} if layer == "frozen" else {}
            found.append(dict(trials(description, partial(trial, data, config, 300.0 if known else 120.0))))
        print(
            f"| {layer} | {width} | {width / 3072:.3f} | {found[0]['rank'] or '-'} "
            f"| {'-' if not known else format(max(one['angle'] for one in found), '.0e')} "
            f"| {' '.join(format(one['rho'], '.4f') for one in found)} "
            f"| {' '.join(str(one['found']) for one in found)} | {', '.join(sorted({x['outcome'] for x in found}))} |",
            flush=True,
        )


def recipes(trials: Trials, data_dir: Path) -> None:
    print("\nThe same on 16 x 16 pixels (d = 768), width 600, by recipe.\n")
    print("| recipe | what the first layer shows | largest angle | rho | found |\n| --- | --- | --- | --- | --- |")
    data = load(DataConfig(name="cifar10", samples=10, classes=CLASSES, data_dir=data_dir, side=16))
    for name, (loss, recipe) in RECIPES.items():
        config = TwoLayerConfig(width=600, loss=loss, recipe=recipe, knows_first_layer=True)
        found = trials({"recipe": name}, partial(trial, data, config, 120.0))
        angle = f"{found['angle']:.0e}"
        print(f"| {name} | {found['note']} | {angle} | {found['rho']:.4f} | {found['found']} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="also the attack in the whole space")
    options = parser.parse_args()
    trials = Trials(options.out / "trials.jsonl")
    synthetic(trials, options.seeds, options.whole)
    if options.data_dir is not None:
        cifar(trials, options.data_dir, options.seeds)
        recipes(trials, options.data_dir)


if __name__ == "__main__":
    main()
