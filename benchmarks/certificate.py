"""How often is the certificate wrong? Random small problems, judged against the truth afterwards.

    python benchmarks/certificate.py [--problems 216] [--seconds 20] [--seed 0] [--part 0/1] [--json FILE]

Over p/(dn) from 0.5 to 10 and several activations it counts
- candidates that were called recovered (confidence from 1/2) and are not within 0.1 sqrt(d) of a true sample: target 0;
- problems whose samples were all recovered although the outcome is not `recovered`: target below 5 %.
"""

import argparse
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.metrics.errors import evaluate
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

RATIOS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
ACTIVATIONS = ("relu", "tanh", "relu+tanh", "gelu", "softplus", "erf")
SHAPES = ((20, 4), (30, 8), (40, 12))


def judge(ratio: float, activation: str, dim: int, samples: int, seed: int, seconds: float) -> dict[str, Any]:
    data = load(DataConfig(name="sphere", samples=samples, dim=dim, seed=seed))
    config = RandomFeaturesConfig(params=round(ratio * samples * dim), activation=activation, seed=seed)
    victim = train_random_features(config, data, draw_rows(config, dim))
    attacked = run_attack(victim.observation.knowing(None), SplitNewton(), seed=seed, limits=Limits(seconds))
    found = attacked.reconstruction
    called = torch.tensor(found.certificate.confidence) >= 0.5
    distances = torch.minimum(
        torch.cdist(found.candidates, data.inputs), torch.cdist(found.candidates, -data.inputs)
    ).min(dim=1)
    wrong = int((called & (distances.values > 0.1 * dim**0.5)).sum())
    score = evaluate(data.inputs, found.candidates)
    return {
        "ratio": ratio,
        "activation": activation,
        "dim": dim,
        "samples": samples,
        "seed": seed,
        "outcome": found.outcome.value,
        "found": len(found.candidates),
        "called": int(called.sum()),
        "wrongly_called": wrong,
        "all_recovered": score.recovered_fraction == 1 and len(found.candidates) == samples,
        "error": score.error,
        "held_out_loss": found.held_out_loss,
        "loss": found.loss,
        "seconds": found.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=216)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each round of the grid takes the next")
    parser.add_argument("--part", default="0/1", help="which of how many parts, e.g. 1/2 on the second of two cores")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    part, parts = (int(number) for number in options.part.split("/"))
    results = []
    grid = itertools.product(range(options.problems), SHAPES, RATIOS, ACTIVATIONS)
    for round_number, (dim, samples), ratio, activation in itertools.islice(grid, part, options.problems, parts):
        results.append(judge(ratio, activation, dim, samples, options.seed + round_number, options.seconds))
        line = results[-1]
        if line["wrongly_called"] or (line["all_recovered"] and line["outcome"] != "recovered"):
            print("look:", line, flush=True)
    print("p/(dn)   problems  recovered  outcomes")
    for ratio in RATIOS:
        lines = [line for line in results if line["ratio"] == ratio]
        outcomes = ", ".join(f"{name} {count}" for name, count in Counter(x["outcome"] for x in lines).most_common())
        print(f"{ratio:6g} {len(lines):10} {sum(x['all_recovered'] for x in lines):10}  {outcomes}")
    called = sum(line["called"] for line in results)
    wrong = sum(line["wrongly_called"] for line in results)
    genuine = [line for line in results if line["all_recovered"]]
    missed = sum(line["outcome"] != "recovered" for line in genuine)
    claimed = sum(line["outcome"] == "recovered" and not line["all_recovered"] for line in results)
    print(f"{len(results)} problems: {called} candidates called recovered, {wrong} of them wrongly")
    print(f"{len(genuine)} problems recovered in full, {missed} of them not called so")
    print(f"{claimed} problems called recovered that were not recovered in full")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
