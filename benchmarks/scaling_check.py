"""Is the cost model right for attacks that are larger than those it was fitted to?

    python benchmarks/scaling_check.py scaling.json RUN [RUN ...] [--threads 2]

scaling.json is what `scaling.py --keep` wrote; RUN are folders of attacks by split-newton that are done. Each iteration
of a run's trace is predicted from its candidates and passes. On several threads operations are shared, while V is still
read at the rate of one: memory is common to all.
"""

import argparse
import csv
import math
from dataclasses import replace
from pathlib import Path

from scaling_measured import Measured
from scaling_model import PARTS, Costs, Shape, fit_costs

from exhume.experiments.documents import read_summary

INNER_PRODUCTS = 30.0


def fitted(path: Path) -> Costs:
    points = Measured.load(path).points
    counts = [point.shape.part(name) for point in points for name in PARTS]
    return fit_costs(counts, [point.cpu[name] for point in points for name in PARTS])


def predicted(run: Path, costs: Costs, threads: int) -> tuple[float, float]:
    """Seconds that the trace says and those of the model."""
    known = read_summary(run / "summary.json")
    d, outputs = int(known["d"]), int(known.get("outputs") or 1)
    most = int(known["p"]) // outputs  # rows, with an equation for each output
    total = passes = seconds = 0.0
    with (run / "trace.csv").open() as lines:
        for line in csv.DictReader(lines):
            m = int(float(line["candidates"]))
            rows = min(most, math.ceil(5 * d * max(m, 8) / outputs / 1024) * 1024)
            counts = Shape(m, d, rows, INNER_PRODUCTS).whole()
            reading = costs.reads * counts.reads
            others = costs.seconds(replace(counts, reads=0.0)) / threads
            total += (reading + others) * (float(line["passes"]) - passes) / 2
            passes, seconds = float(line["passes"]), float(line["seconds"])
    return seconds, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    costs = fitted(options.measured)
    print("| run | n | d | p | seconds | predicted |\n| --- | --- | --- | --- | --- | --- |")
    for run in options.runs:
        known = read_summary(run / "summary.json")
        seconds, expected = predicted(run, costs, options.threads)
        print(f"| {run.name} | {known['n']} | {known['d']:,} | {known['p']:,} | {seconds:.0f} | {expected:.0f} |")


if __name__ == "__main__":
    main()
