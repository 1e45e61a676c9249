"""How wide does a model have to be? Recovery against width, angles of estimated subspaces, and the bound put to a test.

    python benchmarks/width.py --out FOLDER [--quick]

Three studies, a figure and a table each; every trial is kept in FOLDER/trials.jsonl, so that a run that was stopped
goes on where it was. `--quick` takes a coarser grid and fewer trials.

- `recovery.png`: random features with ReLU, data in r of d dimensions; the attacker knows the subspace, or does not.
  With it the width that is needed follows r n and not d n.
- `angles.png`: the largest principal angle between the data's span and the one estimated from the first layer's change,
  for several recipes; and how much of the data the moments of the weights capture where the first layer is frozen.
- `falsification.png`: two samples on a circle, all candidates of a grid, all coefficients
  (`exhume_papers/studies/two_on_circle.py`). The bound is refuted if, at its width, candidates that are not close
  explain the weights significantly more often than delta allows (binomial test at 1 %); with 60 trials and no failure a
  rate above delta = 5 % is refuted (at 95 %).
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest
from trials import Trials
from width_figures import Curve, draw_angles, draw_falsification, draw_recovery
from width_study import AngleTrial, MomentTrial, WidthTrial

from exhume_papers.studies.two_on_circle import CircleTrial, separation, width_bound
from exhume_papers.victims.recipe import DescentRecipe

SAMPLES = 6


@dataclass(frozen=True)
class Grid:
    dimensions: tuple[int, ...] = (5, 10, 20)
    ratios: tuple[float, ...] = (0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
    ambient: tuple[int, ...] = (40, 160, 640)
    untold: tuple[int, ...] = (40, 80)
    widths: tuple[int, ...] = (50, 100, 200, 400, 800, 1600)
    seeds: int = 5
    on_circle: int = 100


QUICK = Grid((5, 20), (1.0, 2.0, 4.0), (40, 640), (40,), (50, 200, 800), 2, 60)
RECIPES = {
    "gradient descent": DescentRecipe(),
    "sgd, momentum 0.9": DescentRecipe(method="sgd", momentum=0.9, until=1e-6),
    "weight decay 0.01": DescentRecipe(weight_decay=0.01, steps=500),
    "Adam (told, not used)": DescentRecipe(method="adam", until=1e-5),
}
MOMENT_RATIOS, MOMENT_DIM, MOMENT_SAMPLES = (1, 2, 5, 10, 30, 100), 100, 10
Trial = WidthTrial | AngleTrial | MomentTrial | CircleTrial
FAILURE_RATE = 0.05


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
    eta, bound = separation(), width_bound(FAILURE_RATE)
    print(f"\neta {eta:.3g}, bound {bound:,}\n\n| width | failures | refutes the bound |\n| --- | --- | --- |")
    widths, shares = [3, 5, 8, 10, 15, 20, 30, 50, 100, 300, 1000, bound], []
    for width in widths:
        losses = [run(trials, CircleTrial(width, seed)) for seed in range(grid.on_circle)]
        failures = sum(loss < eta / 4 for loss in losses)
        shares.append(failures / grid.on_circle)
        above = binomtest(failures, grid.on_circle, FAILURE_RATE, alternative="greater").pvalue < 0.01
        print(
            f"| {width:,} | {failures} of {grid.on_circle} | {'yes' if above and width >= bound else 'no'} |",
            flush=True,
        )
    group = "two samples, r = 2"
    draw_falsification([Curve(group, "", widths, shares)], {group: bound}, FAILURE_RATE, out / "falsification.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bound-only", action="store_true", help="the third study alone")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    trials = Trials(options.out / "trials.jsonl")
    grid = QUICK if options.quick else Grid()
    if not options.bound_only:
        recovery(trials, grid, options.out)
        angles(trials, grid, options.out)
    falsification(trials, grid, options.out)


if __name__ == "__main__":
    main()
