"""Images below the threshold: how many come back, and at which resolution, against p/(dn), with and without a prior.

    python benchmarks/prior.py OUT [--data-dir DIR] [--ratios 0.1,0.3,...] [--seeds 0] [--minutes 10] [--told]
                               [--samples 20] [--side 32]

CIFAR-10, 10 frogs and 10 trucks, d = 3,072, unless told otherwise. OUT/prior.json gets one line for each (ratio, seed,
prior); what is there already is not computed again, so an interrupted run goes on. OUT/prior.png is drawn from it. The
seed draws V and the attack's start; the images are the same. An image counts as recovered at a resolution where a
candidate has |cos| > 0.9 to it there.
"""

import argparse
import itertools
import json
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.files import write_text
from exhume.metrics.low_resolution import low_resolution
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
RESOLUTIONS = (24, 48, 100, 300, 1000, 3072)


def images(samples: int, side: int, data_dir: Path | None) -> Dataset:
    smaller = {} if side == 32 else {"side": side}
    return load(DataConfig.parse(name="cifar10", samples=samples, data_dir=data_dir, **smaller))


def measure(data: Dataset, ratio: float, seed: int, prior: bool, minutes: float, told: bool) -> dict[str, Any]:
    n, d = data.inputs.shape
    config = RandomFeaturesConfig(params=round(ratio * n * d), seed=seed)
    observation = train_random_features(config, data, draw_rows(config, d)).observation.knowing(n if told else None)
    method = ImagePrior() if prior else SplitNewton()
    found = run_attack(observation, method, seed=seed, limits=Limits(60 * minutes)).reconstruction
    told_resolution = found.facts.get("resolution")
    trusted = told_resolution["frequencies"] if told_resolution else None
    shape = data.image_shape
    assert shape is not None
    confident = torch.tensor(found.certificate.confidence) >= 0.5
    at = {
        r: low_resolution(data.inputs, found.candidates, shape, r)
        for r in (*(r for r in RESOLUTIONS if r <= d), *([trusted] if trusted else ()))
    }
    wrong = 0
    if trusted and bool(confident.any()):
        called = low_resolution(found.candidates[confident], data.inputs, shape, trusted)
        wrong = int((called.cosines <= 0.9).sum())
    return {
        "ratio": ratio,
        "seed": seed,
        "prior": prior,
        "told": told,
        "outcome": found.outcome.value,
        "found": len(found.candidates),
        "trusted": int(confident.sum()),
        "wrongly_trusted": wrong,
        "resolution": trusted,
        "recovered_at_resolution": at[trusted].recovered_fraction if trusted else None,
        "lookalikes_at_resolution": at[trusted].lookalikes if trusted else None,
        "recovered": {str(r): at[r].recovered_fraction for r in RESOLUTIONS if r in at},
        "cosine": {str(r): float(at[r].cosines.mean()) for r in RESOLUTIONS if r in at},
        "held_out_loss": found.held_out_loss,
        "seconds": found.seconds,
    }


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, 1, sharex=True, figsize=(6.4, 6.4), height_ratios=(3, 2))
    for prior, name, colour in ((True, "with the image prior", "C0"), (False, "without", "C1")):
        chosen = [line for line in lines if line["prior"] is prior]
        ratios = sorted({line["ratio"] for line in chosen})
        if not ratios:
            continue
        shown = sorted(set(map(int, chosen[0]["recovered"])) & {48, 300, 3072})
        for r, style in zip(shown, ("--", "-", ":"), strict=False):
            shares = [mean(x["recovered"][str(r)] for x in chosen if x["ratio"] == ratio) for ratio in ratios]
            upper.plot(ratios, shares, style, color=colour, marker=".", label=f"{name}, {r:,} frequencies")
        trusted = [(x["ratio"], x["resolution"]) for x in chosen if x["trusted"] and x["resolution"]]
        if trusted:
            lower.plot(*zip(*trusted, strict=True), "o", color=colour, label=f"{name}: trusted")
    upper.set_ylabel("images with cosine > 0.9")
    upper.legend(fontsize=7)
    lower.set_ylabel("trusted frequencies")
    lower.set_yscale("log")
    lower.set_xscale("log")
    lower.set_xlabel("p / (dn)")
    for axis in (upper, lower):
        axis.axvline(1.0, color="grey", linewidth=0.8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--ratios", default=",".join(f"{ratio:g}" for ratio in RATIOS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--told", action="store_true", help="tell the attacks the number of samples")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--only", choices=("prior", "plain"))
    options = parser.parse_args()
    data, path = images(options.samples, options.side, options.data_dir), options.out / "prior.json"
    lines = json.loads(path.read_text()) if path.exists() else []
    kinds = {"prior": (True,), "plain": (False,), None: (True, False)}[options.only]
    grid = itertools.product(map(int, options.seeds.split(",")), map(float, options.ratios.split(",")), kinds)
    for seed, ratio, prior in grid:
        done = {(line["ratio"], line["seed"], line["prior"], line["told"]) for line in lines}
        if (ratio, seed, prior, options.told) in done:
            continue
        lines.append(measure(data, ratio, seed, prior, options.minutes, options.told))
        write_text(path, json.dumps(lines, indent=1) + "\n")
        print(json.dumps(lines[-1]), flush=True)
        draw(lines, options.out / "prior.png")
    draw(lines, options.out / "prior.png")


if __name__ == "__main__":
    main()
