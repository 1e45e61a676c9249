"""The sphere cases that exhume must solve, seed by seed; n is never told.

python benchmarks/targets.py [--cases 3dn,2dn,1.5dn,1.25dn,1.1dn,n100,formats] [--seeds 10] [--first 0]
"""

import argparse
import statistics
from typing import Any

import torch

from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.metrics.errors import reconstruction_error, signed_error
from exhume.observation import Observation
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

# name -> n, p/(dn), seconds for each seed, error to reach, seeds
CASES = {
    "3dn": (20, 3.0, 60.0, 1e-4, 10),
    "2dn": (20, 2.0, 30.0, 1e-2, 10),
    "1.5dn": (20, 1.5, 180.0, 1e-2, 10),
    "1.25dn": (20, 1.25, 120.0, 1e-2, 10),
    "1.1dn": (20, 1.1, 600.0, 1e-2, 3),
    "n100": (100, 3.0, 600.0, 1e-2, 3),
}


def attack(samples: int, ratio: float, seed: int, seconds: float, published_as: str = "float32") -> dict[str, Any]:
    data = load(DataConfig(name="sphere", samples=samples, dim=100, seed=seed))
    config = RandomFeaturesConfig(params=round(ratio * samples * 100), seed=seed)
    observation = train_random_features(config, data, draw_rows(config, 100)).observation.knowing(None)
    observation = publish(observation, published_as)
    found = run_attack(observation, SplitNewton(), seed=seed, limits=Limits(seconds)).reconstruction
    return {
        "found": len(found.candidates),
        "error": reconstruction_error(data.inputs, found.candidates),
        "signed_error": signed_error(data.inputs, found.candidates),
        "outcome": found.outcome.value,
        "seconds": found.seconds,
        "passes": found.passes,
    }


def publish(observation: Observation, kind: str) -> Observation:
    """The same observation with its weights rounded to a shorter format."""
    weights = observation.weights
    if kind == "int8":
        step = weights.abs().max() / 127
        weights = (weights / step).round() * step
    else:
        weights = weights.to(getattr(torch, kind)).to(torch.float32)
    return Observation(observation.features, weights, observation.knowledge, observation.image_shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="3dn,2dn,1.5dn,n100,formats")
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    options = parser.parse_args()
    for name in options.cases.split(","):
        if name == "formats":
            for kind in ("float16", "bfloat16", "int8"):
                line = attack(20, 5.0, 0, 60.0, kind)
                print(f"p=5dn, weights as {kind}: {line}", flush=True)
            continue
        samples, ratio, seconds, target, seeds = CASES[name]
        lines = []
        for seed in range(options.first, options.first + (options.seeds or seeds)):
            lines.append(attack(samples, ratio, seed, seconds))
            print(f"  {name} seed {seed}: {lines[-1]}", flush=True)
        good = sum(line["error"] < target for line in lines)
        signed = sum(line["signed_error"] < target for line in lines)
        counted = sum(line["found"] == samples for line in lines)
        median = statistics.median(line["seconds"] for line in lines)
        print(
            f"{name}: rho < {target:g} on {good} of {len(lines)}, signed on {signed}, n found on {counted}, "
            f"median {median:.1f} s, slowest {max(line['seconds'] for line in lines):.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
