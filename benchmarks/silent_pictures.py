"""Training images beside what came back of them, from four ordinary networks: the picture of docs/silent-units.md.

    python benchmarks/silent_pictures.py --data-dir DIR --out docs/images/ordinary-networks.png

CIFAR-10, n = 50, n not told. Shown are the first ten images of each set, in the order of the file. About a minute.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from silent_scoring import attack
from silent_units import CASES
from torch import Tensor

from exhume.metrics.matching import match
from exhume.report.figure_file import save_figure

SHOWN, SEED = 10, 1
ROWS = {
    "n50": "ReLU,\n1,000 units",
    "h250": "ReLU, 250 units\n(5 per image)",
    "adam": "Adam's exp_avg\nin a checkpoint",
    "gelu": "GELU:\nno unit is silent",
}


def pixels(rows: Tensor, like: Tensor) -> Tensor:
    """Both on the scale of the true images."""
    low, high = like.min(), like.max()
    return ((rows - low) / (high - low)).clamp(0, 1).reshape(-1, 3, 32, 32).permute(0, 2, 3, 1)


def _name(axis: Axes, title: str) -> None:
    axis.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots(len(ROWS) + 1, SHOWN)
    for line, (name, title) in enumerate(ROWS.items(), start=1):
        states, samples = CASES[name].make(options.data_dir, SEED)
        done = attack(states, samples, seed=SEED, budget_seconds=120.0)
        found = done.found.inputs.float()
        order = match(samples.float(), found, sign_free=False).candidate[:SHOWN]
        score = f"{done.score.within} of {len(samples)} within 0.1, median error {done.score.median:.0e}"
        print(f"{' '.join(title.split())}: {score}")
        for column in range(SHOWN):
            axes[0, column].imshow(pixels(samples[column : column + 1], samples)[0])
            axes[line, column].imshow(pixels(found[order[column]][None], samples)[0])
        _name(axes[line, 0], title)
    _name(axes[0, 0], "trained on")
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    save_figure(figure, options.out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
