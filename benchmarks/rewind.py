"""Rewind on the zoo's digits, of whose training the start of the head is known and nothing else.

    python benchmarks/rewind.py --seeds 3:6

With --picture PATH the digits of the first seed are drawn, and what came back of them.
"""

import argparse
from pathlib import Path

from on_victims import observed, print_table
from zoo.registry import VICTIMS
from zoo.scoring import match

import exhume
from exhume.attacks.rewind.attack import Rewind
from exhume.picture_grid import from_rows
from exhume.report.figures import draw_pairs

VICTIM = "digits-head-start"
SIDES = (1, 8, 8)


def draw(seed: int, rounds: int, path: Path) -> None:
    trained = VICTIMS[VICTIM].train(seed)
    found = exhume.reconstruct(observed(trained), method=Rewind(rounds), seed=seed)
    records = trained.records.inputs.flatten(start_dim=1)
    matched = match(records.double(), found.inputs.double())
    shown = [at for at in range(len(records)) if at in matched]
    pairs = records[shown], found.inputs[[matched[at] for at in shown]]
    draw_pairs(from_rows(pairs[0], SIDES), from_rows(pairs[1], SIDES), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="3:6")
    parser.add_argument("--rounds", type=int, default=Rewind().iterations)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    first, last = (int(end) for end in options.seeds.split(":"))
    if options.picture is not None:
        draw(first, options.rounds, options.picture)
        return
    print_table([VICTIM], range(first, last), Rewind(options.rounds))


if __name__ == "__main__":
    main()
