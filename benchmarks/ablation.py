"""What each mechanism of the single-layer engine buys: every one is switched off alone, on the same problems.

    OMP_NUM_THREADS=1 python benchmarks/ablation.py --out RUNS.jsonl [--cases 3dn,2dn] [--without selection] [--seeds 5]
           [--first 7000] [--minutes 9]
    python benchmarks/ablation.py --out RUNS.jsonl --page

A run is one line of RUNS.jsonl; what is there already is not run again, so that pieces of a few minutes add up.
`--page` prints the table instead. n is never told. A run *succeeds* if it ends with the right number of samples, each
within 0.01 of its norm on average, signs included. Runs have a limit of iterations and none of time, so that they do
not depend on the machine. Where a mechanism is never asked in a run with all of them, that run is taken. How a
mechanism is switched off: `mechanisms.py`.
"""

import argparse
import json
import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mechanisms import MECHANISMS, Mechanism, noted

from exhume.attacks.running.loop import run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.metrics.errors import signed_error
from exhume.observation import Observation
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

ALL = "nothing"  # is switched off
REACHED = 1e-2
ITERATIONS = 1000


@dataclass(frozen=True)
class Problem:
    """`dense`: in the regime of few dimensions; that of many has mechanisms of its own."""

    samples: int
    dim: int
    ratio: float
    dense: bool = True
    logistic: bool = False
    images: bool = False

    def make(self, seed: int, data_dir: Path) -> tuple[Dataset, Observation]:
        rule = "sign" if self.logistic else "linear"
        if self.images:
            side = round((self.dim / 3) ** 0.5)
            kind: dict[str, Any] = {"name": "cifar10", "side": side, "data_dir": data_dir}
        else:
            kind = {"name": "sphere", "dim": self.dim, "label_rule": rule}
        data = load(DataConfig(samples=self.samples, seed=seed, **kind))
        params = round(self.ratio * self.samples * data.inputs.shape[1])
        fit: dict[str, Any] = {"fit": "logistic", "steps": 20_000} if self.logistic else {}
        config = RandomFeaturesConfig(params=params, seed=seed, **fit)
        victim = train_random_features(config, data, draw_rows(config, data.inputs.shape[1]))
        return data, victim.observation.knowing(None)


SMALL = {
    "3dn": Problem(10, 30, 3.0),
    "2dn": Problem(10, 30, 2.0),
    "1.5dn": Problem(10, 30, 1.5),
    "n = d = 14, 2dn": Problem(14, 14, 2.0),
    "logistic, 3dn": Problem(10, 30, 3.0, logistic=True),
    "images of d = 48, 2dn": Problem(10, 48, 2.0, images=True),
    "as if d were large, 3dn": Problem(10, 30, 3.0, dense=False),
    "as if d were large, 2dn": Problem(10, 30, 2.0, dense=False),
}
"""Seconds of one core each."""
LARGER = {
    "d = 100, 3dn": Problem(20, 100, 3.0),
    "d = 100, 2dn": Problem(20, 100, 2.0),
    "d = 100, 1.5dn": Problem(20, 100, 1.5),
    "n = d = 40, 3dn": Problem(40, 40, 3.0),
    "n = d = 40, 2dn": Problem(40, 40, 2.0),
    "logistic, d = 100, 3dn": Problem(20, 100, 3.0, logistic=True),
    "images of d = 192, 2dn": Problem(20, 192, 2.0, images=True),
    "d = 300, 3dn": Problem(20, 300, 3.0, dense=False),
    "images of d = 300, 3dn": Problem(20, 300, 3.0, dense=False, images=True),
}
CASES = SMALL | LARGER


def run(name: str, without: str, seed: int, data_dir: Path) -> dict[str, Any]:
    data, observation = CASES[name].make(seed, data_dir)
    off = MECHANISMS.get(without, Mechanism())
    method = replace(SplitNewton(iterations=ITERATIONS, dense_dim=256 if CASES[name].dense else 0), **off.settings)
    began = time.process_time()
    with off.switched_off(), noted() if without == ALL else nullcontext() as mattered:
        found = run_attack(observation, method, seed=seed).reconstruction
    spent = time.process_time() - began
    error = signed_error(data.inputs, found.candidates)
    return {
        "case": name,
        "without": without,
        "seed": seed,
        "found": len(found.candidates),
        "error": error,
        "good": error < REACHED and len(found.candidates) == len(data.inputs),
        "outcome": found.outcome.value,
        "iterations": found.iterations,
        "passes": found.passes,
        "cpu_seconds": spent,
        "mattered": sorted(mattered) if mattered is not None else None,
    }


def key(line: dict[str, Any]) -> tuple[str, str, int]:
    return line["case"], line["without"], line["seed"]


def stored(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(lines: list[dict[str, Any]]) -> str:
    """Per mechanism and case: successes, median passes, median CPU seconds."""
    cases = [name for name in CASES if any(line["case"] == name for line in lines)]
    rows = [ALL, *(name for name in MECHANISMS if any(line["without"] == name for line in lines))]
    text = ["| switched off | " + " | ".join(cases) + " |", "| --- " * (len(cases) + 1) + "|"]
    for row in rows:
        cells = (cell([line for line in lines if (line["case"], line["without"]) == (name, row)]) for name in cases)
        text.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def cell(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return ""
    passes, seconds = (statistics.median(run[what] for run in runs) for what in ("passes", "cpu_seconds"))
    return f"{sum(run['good'] for run in runs)}/{len(runs)}, {passes:.0f}, {seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", help="separated by semicolons; default: the small ones")
    parser.add_argument("--without", help="mechanisms, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=7000, help="the first seed")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no run after so many")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="with cifar-10-batches-bin/")
    parser.add_argument("--page", action="store_true", help="print the table")
    options = parser.parse_args()
    if options.page:
        print(table(stored(options.out)))
        return
    began, done = time.monotonic(), {key(line): line for line in stored(options.out)}
    cases = options.cases.split(";") if options.cases else list(SMALL)
    mechanisms = options.without.split(";") if options.without else [ALL, *MECHANISMS]
    for without in mechanisms:
        for name in cases:
            if without != ALL and not MECHANISMS[without].matters_where(CASES[name].dense):
                continue
            for seed in range(options.first, options.first + options.seeds):
                if (name, without, seed) in done:
                    continue
                if time.monotonic() - began > 60 * options.minutes:
                    print("more is left: the same command again")
                    return
                whole = done.get((name, ALL, seed))
                if whole is not None and without not in whole["mattered"]:
                    line = whole | {"without": without, "mattered": None}  # the same run, to the last bit
                else:
                    line = run(name, without, seed, options.data_dir)
                done[key(line)] = line
                with options.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main()
