"""Pictures out of the dense layers of the zoo's LeNet: how many of ten digits are recognised (SSIM above 0.6).

    python benchmarks/dense_spans.py --seeds 0:8 [--picture FILE]

The attack is not told n. Control digits were not trained on, and are matched to the same candidates. The picture shows
the digits of the last seed above what came back of them.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from zoo.registry import VICTIMS
from zoo.scoring import match, score

import exhume
from exhume.attacks.dense_spans.attack import DenseSpan
from exhume.attacks.running.loop import run_attack
from exhume.picture_grid import from_rows
from exhume.report.figures import draw_pairs

VICTIM = "lenet-digits"


def row(seed: int, picture: Path | None = None) -> str:
    torch.set_num_threads(1)  # the table's, whatever the machine
    trained = VICTIMS[VICTIM].train(seed)
    _, channels, height, width = trained.records.inputs.shape
    shape = (channels, height, width)
    seen = exhume.observe(trained.model, initial=trained.before, input_shape=shape)
    found = run_attack(replace(seen, image_shape=shape), DenseSpan()).reconstruction
    pictures, sure = found.candidates.reshape(-1, *shape), found.certificate.confidence
    own = score(pictures, sure, trained.records.inputs, trained.control.inputs)
    control = score(pictures, sure, trained.control.inputs, trained.records.inputs)
    n = len(trained.records)
    if picture is not None:
        rows, found_rows = trained.records.inputs.flatten(1), pictures.flatten(1)
        matched = match(rows.double(), found_rows.double())
        shown = found_rows[[matched[at] for at in range(n)]]
        draw_pairs(from_rows(rows, shape), from_rows(shown, shape), picture)
    return f"| {seed} | {own.recognised} of {n} | {control.recognised} | {own.median:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:8")
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    first, last = (int(end) for end in asked.seeds.split(":"))
    print("| seed | recognised | control recognised | median error |")
    print("| --- | --- | --- | --- |")
    for seed in range(first, last):
        print(row(seed, asked.picture), flush=True)


if __name__ == "__main__":
    main()
