"""What an attack costs as the victim grows: CPU seconds, passes and error against p, at the same data.

    OMP_NUM_THREADS=1 python benchmarks/row_economy.py --out OUT [--seeds 3]

Sphere, d = 100, n = 20, ReLU, n not told. Each weight is an equation of its own, and an attack takes no more of them
than it needs, so that its cost hardly grows with p. OUT/rows.json has the numbers, OUT/rows.png the figure. `passes`
are in units of all p rows.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.files import write_text
from exhume.metrics.errors import reconstruction_error
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

DIM, SAMPLES = 100, 20
RATIOS = (3, 5, 10, 30, 100, 300)
SECONDS = 120.0


def measure(ratio: int, seed: int) -> dict[str, Any]:
    data = load(DataConfig(name="sphere", samples=SAMPLES, dim=DIM, seed=seed))
    config = RandomFeaturesConfig(params=ratio * SAMPLES * DIM, seed=seed)
    observation = train_random_features(config, data, draw_rows(config, DIM)).observation.knowing(None)
    began = time.process_time()
    found = run_attack(observation, SplitNewton(), seed=seed, limits=Limits(SECONDS)).reconstruction
    return {
        "p": ratio * SAMPLES * DIM,
        "seed": seed,
        "cpu_seconds": time.process_time() - began,
        "passes": found.passes,
        "iterations": found.iterations,
        "found": len(found.candidates),
        "error": reconstruction_error(data.inputs, found.candidates),
        "outcome": found.outcome.value,
    }


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6.4, 3.6))
    sizes = sorted({line["p"] for line in lines})
    medians = [statistics.median(line["cpu_seconds"] for line in lines if line["p"] == p) for p in sizes]
    axis.plot([line["p"] for line in lines], [line["cpu_seconds"] for line in lines], ".", color="C0", label="attacks")
    axis.plot(sizes, medians, "-", color="C0", label="median")
    axis.plot(sizes, [medians[0] * p / sizes[0] for p in sizes], ":", color="grey", label="if it took all rows")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("p")
    axis.set_ylabel("CPU seconds of an attack")
    axis.axvline(DIM * SAMPLES, color="grey", linewidth=0.8)
    axis.legend(fontsize=8, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    lines = []
    for ratio in RATIOS:
        for seed in range(options.seeds):
            lines.append(measure(ratio, seed))
            print(json.dumps(lines[-1]), flush=True)
    write_text(options.out / "rows.json", json.dumps(lines, indent=1) + "\n")
    draw(lines, options.out / "rows.png")


if __name__ == "__main__":
    main()
