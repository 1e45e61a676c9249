"""Where the silent-units attack works: the share of samples within 0.1, against units per sample and n / d.

    python benchmarks/silent_phase.py --out FOLDER [--part 0/2] [--picture docs/images/silent-phase.png] [--seeds 3]
    python benchmarks/silent_phase.py --out FOLDER --picture docs/images/silent-phase.png --draw

Random tables with columns of different means and sizes, n = 24 rows with ten labels at random; d-h-10 networks with
ReLU, SGD with momentum 0.9, batches of 12, 300 steps. n is not told. Every trial is kept in FOLDER, so that a run that
was stopped goes on and parts can run side by side; FOLDER/silent-phase.csv has all of them. Networks that the attack
refuses (too few units per sample) count as nothing found.

The white line is the counting limit: as many silent units, equations nobody fitted, as a dual has numbers,
h * silent share = n - 1, with the share that the victims have (units silent on a sample at both ends of training). The
dashed line is where the head alone has p = d n weights, the law of attacks on the last layer: h = d n / 10. All weights
together, h (d + 1), reach d n at h = n, below the picture.

About 4 minutes for 243 trials on one core. Expect 1.0 from h = 10 n on, whatever n / d.
"""

import argparse
import csv
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from ordinary_networks import train
from silent_scoring import attack
from torch import Tensor
from trials import Trials

from exhume.errors import ExhumeError
from exhume.layer_states import changed
from exhume.report.figure_file import save_figure

SAMPLES, OUTPUTS, SECONDS = 24, 10, 15.0
WIDTHS = (2, 3, 4, 5, 6, 8, 10, 15, 20)  # h / n
CROWDING = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)  # n / d
FIELDS = ("width", "crowding", "seed", "h", "d", "share", "called", "wrong", "rank", "silent", "seconds", "refused")


@dataclass(frozen=True)
class Trial:
    """`width` is h / n, `crowding` n / d."""

    width: int
    crowding: float
    seed: int

    @property
    def d(self) -> int:
        return round(SAMPLES / self.crowding)

    @property
    def h(self) -> int:
        return self.width * SAMPLES


def table(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of different norms, columns of different means and sizes."""
    stream = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, d, generator=stream) * (0.5 + torch.rand(d, generator=stream))
    rows = rows * (0.6 + 0.8 * torch.rand(n, 1, generator=stream)) + 0.3 * torch.randn(d, generator=stream)
    return rows, torch.randint(OUTPUTS, (n,), generator=stream)


def run(trial: Trial) -> dict[str, Any]:
    inputs, labels = table(SAMPLES, trial.d, trial.seed)
    how: dict[str, Any] = {"steps": 300, "batch": SAMPLES // 2, "lr": 0.02, "momentum": 0.9}
    made = train(inputs, labels, (trial.h, OUTPUTS), seed=trial.seed, **how)
    extended = torch.cat([inputs, torch.ones(SAMPLES, 1)], dim=1)
    silent = float(((extended @ made.start.T < 0) & (extended @ made.end.T < 0)).float().mean())
    kept = asdict(trial) | {"h": trial.h, "d": trial.d, "silent": silent}
    try:
        states = changed(made.start, made.end, bias=True)
        told = attack(states, inputs, seed=trial.seed, budget_seconds=SECONDS).score
    except ExhumeError as why:
        nothing = {"share": 0.0, "called": 0, "wrong": 0, "rank": None, "seconds": 0.0}
        return kept | nothing | {"refused": str(why)}
    found = {"share": told.within / SAMPLES, "called": told.called, "wrong": told.wrong, "rank": told.rank}
    return kept | found | {"seconds": told.seconds, "refused": ""}


def write_csv(path: Path, found: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(sorted(found, key=lambda one: (one["width"], one["crowding"], one["seed"])))


def means(found: list[dict[str, Any]], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Over seeds: a row per h / n, a column per n / d; not a number where nothing was run."""
    grid = np.full((len(WIDTHS), len(CROWDING)), np.nan)
    for i, width in enumerate(WIDTHS):
        for j, crowding in enumerate(CROWDING):
            cell = [one[name] for one in found if (one["width"], one["crowding"]) == (width, crowding)]
            if cell:
                grid[i, j] = np.mean(cell)
    return grid


def draw(found: list[dict[str, Any]], path: Path) -> None:
    shares, silent = means(found, "share"), means(found, "silent")
    figure = Figure(figsize=(7, 5), dpi=150)
    axis = figure.subplots()
    picture = axis.imshow(shares, origin="lower", aspect="auto", vmin=0, vmax=1, cmap="viridis")
    for (i, j), share in np.ndenumerate(shares):
        if np.isfinite(share):
            axis.text(j, i, f"{share:.2f}", ha="center", va="center", fontsize=7, color="w" if share < 0.6 else "k")
    columns = np.arange(len(CROWDING))
    axis.plot(
        columns, _height(_limits(silent)), color="white", linewidth=2, label="silent units = n - 1 (counting limit)"
    )
    heads = np.array([SAMPLES / crowding / OUTPUTS for crowding in CROWDING])
    inside = heads <= WIDTHS[-1]
    axis.plot(columns[inside], _height(heads[inside]), "--", color="red", label="weights of the head = d n")
    axis.set_xticks(columns, [f"{crowding:g}" for crowding in CROWDING])
    axis.set_yticks(range(len(WIDTHS)), [str(width) for width in WIDTHS])
    axis.set_ylim(-0.5, len(WIDTHS) - 0.5)
    axis.set_xlabel("samples per dimension, n / d")
    axis.set_ylabel("units per sample, h / n")
    axis.set_title(f"Samples that come back within 0.1 of their norm (n = {SAMPLES})", fontsize=10)
    axis.legend(loc="lower left", bbox_to_anchor=(0, -0.25), ncols=2, fontsize=8, facecolor="grey")
    figure.colorbar(picture, label="share, mean over seeds")
    figure.tight_layout()
    save_figure(figure, path)


def _limits(silent: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The h / n at which h times the silent share is n - 1, for each n / d; the share grows with h."""
    equations = np.array(WIDTHS)[:, None] * silent
    return np.array([np.interp(1 - 1 / SAMPLES, column, WIDTHS) for column in equations.T])


def _height(widths: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Where a value of h / n lies on an axis whose rows are the WIDTHS; from the line of the first two below them."""
    below = (widths - WIDTHS[0]) / (WIDTHS[1] - WIDTHS[0])
    return np.where(widths < WIDTHS[0], below, np.interp(widths, WIDTHS, range(len(WIDTHS))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--part", default="0/1", help="0/2 and 1/2 are the two halves")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--draw", action="store_true", help="run nothing, draw what is in --out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    began = time.monotonic()
    if not options.draw:
        seeds = range(options.first, options.first + options.seeds)
        asked = [Trial(width, crowding, seed) for seed in seeds for width in WIDTHS for crowding in CROWDING]
        trials = Trials(options.out / f"part-{part}-of-{parts}.jsonl")
        for trial in asked[part::parts]:
            found = trials(asdict(trial), partial(run, trial))
            print(
                f"h/n {trial.width}, n/d {trial.crowding:g}, seed {trial.seed}: {found['share']:.2f} within, "
                f"{found['called']} called, {found['wrong']} wrongly, {found['silent']:.2f} silent, "
                f"{found['seconds']:.1f} s{', refused' if found['refused'] else ''}",
                flush=True,
            )
    every = [one for path in sorted(options.out.glob("part-*.jsonl")) for one in Trials(path).done.values()]
    write_csv(options.out / "silent-phase.csv", every)
    print(f"{len(every)} trials, {sum(one['wrong'] for one in every)} wrong calls, {time.monotonic() - began:.0f} s")
    if options.picture is not None:
        draw(every, options.picture)


if __name__ == "__main__":
    main()
