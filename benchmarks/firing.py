"""Firing patterns on victims of the zoo: records within a tenth, and candidates that are in no record's place.

    python benchmarks/firing.py --victims cancer-sgd --seeds 3:5 --rounds 20

With --picture PATH the candidates of the first victim and seed are drawn instead: how far each is from a record,
against its own blur.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from on_victims import observed, print_table
from zoo.registry import VICTIMS

from exhume.attacks.firing.attack import FiringPatterns
from exhume.attacks.firing.search import SETTLED
from exhume.attacks.foundation.judgement import Resources


def draw(name: str, seed: int, rounds: int, path: Path) -> None:
    trained = VICTIMS[name].train(seed)
    method = FiringPatterns(rounds)
    seen = method.view(observed(trained))
    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    case = method.open_case(seen, seed, 0.1, resources)
    last = list(method.steps(case.problem))[-1].state.tensors
    records = trained.records.inputs.flatten(start_dim=1)
    away = torch.cdist(case.lift(last["candidates"]).to(records), records) / records.norm(dim=1)
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.loglog(last["blur"].exp(), away.min(dim=1).values, "o", color="#b03a2e", markersize=5)
    axes.axhline(0.1, color="#7f8c8d", linewidth=1, linestyle="--")
    axes.axvline(SETTLED, color="#7f8c8d", linewidth=1, linestyle="--")
    axes.set_xlabel("blur, as the likelihood wants it")
    axes.set_ylabel("distance to the nearest record,\nover its norm")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", nargs="+", choices=sorted(VICTIMS), default=["cancer-sgd"])
    parser.add_argument("--seeds", default="3:5")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    first, last = (int(end) for end in options.seeds.split(":"))
    if options.picture is not None:
        draw(options.victims[0], first, options.rounds, options.picture)
        return
    print_table(options.victims, range(first, last), FiringPatterns(options.rounds))


if __name__ == "__main__":
    main()
