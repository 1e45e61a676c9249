"""How wide does a model have to be? Recovery against width, angles of estimated subspaces, and the bound put to a test.

    python benchmarks/width.py --out FOLDER [--quick]

Three studies, a figure and a table each; every trial is kept in FOLDER/trials.jsonl, so that a run that was stopped
goes on where it was. `--quick` takes a coarser grid and fewer trials.

- `recovery.png`: random features with ReLU, data in r of d dimensions; the attacker knows the subspace, or does not.
  With it the width that is needed follows r n and not d n.
- `angles.png`: the largest principal angle between the data's span and the one estimated from the first layer's change,
  for several recipes; and how much of the data the moments of the weights capture where the first layer is frozen.
- `falsification.png`: one sample, the assumptions of the bound to the letter. The bound is refuted if, at its width or
  above, recovery fails significantly more often than delta allows (binomial test at 1 %).
"""

import argparse
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from exhume_papers.figures.width_figures import Curve, draw_angles, draw_falsification, draw_recovery
from exhume_papers.studies.trials import Trials
from exhume_papers.studies.width_bound import WidthBound, one_sample_separation
from exhume_papers.studies.width_study import ZERO_LOSS, AngleTrial, FalsificationTrial, MomentTrial, WidthTrial
from exhume_papers.victims.recipe import Recipe

SAMPLES = 6


@dataclass(frozen=True)
class Grid:
    dimensions: tuple[int, ...] = (5, 10, 20)
    ratios: tuple[float, ...] = (0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
    ambient: tuple[int, ...] = (40, 160, 640)
    untold: tuple[int, ...] = (40, 80)
    widths: tuple[int, ...] = (50, 100, 200, 400, 800, 1600)
    seeds: int = 5
    one_sample: int = 60
    bound_dimensions: tuple[int, ...] = (2, 3)


QUICK = Grid((5, 20), (1.0, 2.0, 4.0), (40, 640), (40,), (50, 200, 800), 2, 30, (2,))
RECIPES = {
    "gradient descent": Recipe(),
    "sgd, momentum 0.9": Recipe(method="sgd", momentum=0.9, until=1e-6),
    "weight decay 0.01": Recipe(weight_decay=0.01, steps=500),
    "Adam (told, not used)": Recipe(method="adam", until=1e-5),
}
MOMENT_RATIOS, MOMENT_DIM, MOMENT_SAMPLES = (1, 2, 5, 10, 30, 100), 100, 10
Trial = WidthTrial | AngleTrial | MomentTrial | FalsificationTrial
CLOSENESS, FAILURE_RATE = 1.0, 0.05


def run(trials: Trials, trial: Trial) -> Any:
    return trials({"kind": type(trial).__name__, **asdict(trial)}, trial.run)


def recovery(trials: Trials, grid: Grid, out: Path) -> None:
    curves = []
    settings = [(r, d, True) for r in grid.dimensions for d in grid.ambient] + [
        (grid.dimensions[0], d, False) for d in grid.untold
    ]
    print("| subspace | r | d | numbers to find | " + " | ".join(f"{ratio:g}x" for ratio in grid.ratios) + " |")
    print("| --- " * (4 + len(grid.ratios)) + "|")
    for r, d, known in settings:
        numbers = SAMPLES * (r if known else d)
        widths = [round(ratio * numbers) for ratio in grid.ratios]
        shares = []
        for width in widths:
            errors = [
                run(trials, trial)
                for trial in (WidthTrial(r, d, SAMPLES, width, known, seed) for seed in range(grid.seeds))
            ]
            shares.append(sum(error < 0.01 for error in errors) / grid.seeds)
        group = f"r = {r}" if known else "subspace not known"
        curves.append(Curve(group, f"d = {d}, numbers {numbers:,}", widths, shares))
        cells = " | ".join(f"{share:.0%}" for share in shares)
        print(f"| {'known' if known else 'not known'} | {r} | {d} | {numbers} | {cells} |", flush=True)
    draw_recovery(curves, out / "recovery.png")


def angles(trials: Trials, grid: Grid, out: Path) -> None:
    first = []
    print(
        "\n| recipe | "
        + " | ".join(f"h = {width}" for width in grid.widths)
        + " |\n| --- "
        + "| --- " * len(grid.widths)
        + "|"
    )
    for name, recipe in RECIPES.items():
        worst = []
        for width in grid.widths:
            found = [
                run(trials, trial)
                for trial in (AngleTrial(10, 200, 20, width, recipe, s) for s in range(min(3, grid.seeds)))
            ]
            worst.append(max(angle for angle, _ in found))
        first.append(Curve(name, "", grid.widths, worst))
        print(f"| {name} | " + " | ".join(f"{angle:.1e}" for angle in worst) + " |", flush=True)
    moments = []
    for times in (1, 2, 4):
        shares = []
        for ratio in MOMENT_RATIOS:
            width = ratio * MOMENT_DIM * MOMENT_SAMPLES
            found = [
                run(trials, trial)
                for trial in (
                    MomentTrial(MOMENT_DIM, MOMENT_SAMPLES, width, times * MOMENT_SAMPLES, seed)
                    for seed in range(grid.seeds)
                )
            ]
            shares.append(sum(found) / grid.seeds)
        moments.append(Curve(f"{times}n directions", "", MOMENT_RATIOS, shares))
    print("\n| directions | " + " | ".join(f"p = {ratio}dn" for ratio in MOMENT_RATIOS) + " |")
    print("| --- " + "| --- " * len(MOMENT_RATIOS) + "|")
    for curve in moments:
        print(f"| {curve.group} | " + " | ".join(f"{share:.2f}" for share in curve.up) + " |")
    draw_angles(first, moments, out / "angles.png")


def falsification(trials: Trials, grid: Grid, out: Path) -> None:
    curves, bounds = [], {}
    print("\n| r | bound | trials there | failures there | refuted |\n| --- | --- | --- | --- | --- |")
    for r in grid.bound_dimensions:
        eta = one_sample_separation(r, math.sqrt(r), 1.0, CLOSENESS)
        bound = WidthBound(1, r, eta, 1.0, math.sqrt(r), 1.0, math.sqrt(r), FAILURE_RATE).width
        widths = [1, 2, 3, 4, 6, 10, 30, 100, 1000, bound]
        shares = []
        for width in widths:
            found = [
                run(trials, trial) for trial in (FalsificationTrial(r, width, seed) for seed in range(grid.one_sample))
            ]
            # a fit that does not explain the weights is the search's failure: it says nothing against the bound
            failures = sum(distance >= CLOSENESS and loss < ZERO_LOSS for distance, loss in found)
            shares.append(sum(distance >= CLOSENESS for distance, _ in found) / grid.one_sample)
        refuted = binomtest(failures, grid.one_sample, FAILURE_RATE, alternative="greater").pvalue < 0.01
        print(f"| {r} | {bound:,} | {grid.one_sample} | {failures} | {'yes' if refuted else 'no'} |", flush=True)
        curves.append(Curve(f"r = {r}", "", widths, shares))
        bounds[f"r = {r}"] = bound
    draw_falsification(curves, bounds, FAILURE_RATE, out / "falsification.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    trials = Trials(options.out / "trials.jsonl")
    grid = QUICK if options.quick else Grid()
    recovery(trials, grid, options.out)
    angles(trials, grid, options.out)
    falsification(trials, grid, options.out)


if __name__ == "__main__":
    main()
