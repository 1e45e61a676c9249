"""What defences cost the model, and what they cost an attack. n is never told.

    python benchmarks/defences.py [--parts sphere,faces,start] [--data-dir FOLDER] [--patience 1] [--json FILE]

sphere (d = 30) and faces (d = 625): random features, relu, n = 10, p = 6dn. Columns:

    rows     equations that are left to an attack
    train    mean squared error of the published model on its training labels
    moved    ||f - f*||² / ||f*||² on fresh inputs: how far its outputs are from those of the undefended fit f*
    test     mean squared error on fresh labels over their variance (sphere only: labels of faces mean nothing)
    floor    the loss of Eq. 11 at the true data: 0 if the published weights still are combinations of the features
    rho      the attack's error, its outcome, the candidates it ended with, its seconds

start: a two-layer network (CIFAR-10 at 8 x 8 pixels if --data-dir holds it, else faces), p_L = 6dn, and what an
attacker can do who knows more or less about the head that training began with: its values (or its seed up to a search,
which comes to the same), that it is zero, or only its distribution. Then it is noise on the change of the head; size 1
is N(0, 1/h), smaller ones are computed and not trained.

Takes less than 3 minutes on one core. Noise keeps an attack from converging: it is ended after a few seconds, times
--patience.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from exhume.attacks.loop import Limits, run_attack
from exhume.attacks.span import SpanLoss
from exhume.attacks.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import hold
from exhume.metrics.errors import reconstruction_error
from exhume.observation import Observation
from exhume.victims.defences import parse_defences, publish
from exhume.victims.descent import train_module
from exhume.victims.private import PrivateRecipe, train_private_head
from exhume.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features
from exhume.victims.recipe import Recipe
from exhume.victims.two_layer import TwoLayerConfig, TwoLayerVictim, draw_head, train_two_layer

SAMPLES, RATIO, FRESH = 10, 6, 90
SECONDS = {"sphere": 5.0, "faces": 8.0, "start": 4.0}
PUBLISHED = {
    "sphere": "none fp16 bf16 int8 prune50 obs50 prune75 obs75 obs90 prune50+int8 noise0.01 noise0.03 noise0.1",
    "faces": "none int8 prune50 obs50 noise0.01 noise0.1",
}
PRIVATE = {"sphere": ((0.0, 200), (0.003, 200), (0.03, 200), (1.0, 200), (1.0, 20)), "faces": ((0.03, 200),)}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
GUESSED_SEEDS = 1000


@dataclass(frozen=True, eq=False)
class Case:
    """Training data, fresh data of the same kind, and the undefended fit."""

    name: str
    data: Dataset
    fresh: Dataset
    undefended: Observation

    @property
    def features(self) -> RidgeFeatures:
        return ridge(self.undefended)


@dataclass(frozen=True)
class Line:
    case: str
    defence: str
    numbers: dict[str, float | int | str | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="sphere,faces,start")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began, lines = time.monotonic(), []
    for part in options.parts.split(","):
        seconds = SECONDS[part] * options.patience
        if part == "start":
            found = start_lines(options.data_dir, options.seed, seconds)
        else:
            found = defence_lines(make_case(part, options.seed), options.seed, seconds)
        lines += list(printed(part, found))
    print(f"{time.monotonic() - began:.0f} s")
    if options.json:
        written = [{"case": line.case, "defence": line.defence, **line.numbers} for line in lines]
        options.json.write_text(json.dumps(written, indent=1) + "\n")


def printed(part: str, lines: Iterator[Line]) -> Iterator[Line]:
    for position, line in enumerate(lines):
        if position == 0:
            print(f"\n{part:32}" + "".join(f"{name:>15}" for name in line.numbers))
        shown = (f"{value:15.2g}" if isinstance(value, float) else f"{value!s:>15}" for value in line.numbers.values())
        print(f"{line.defence:32}" + "".join(shown), flush=True)
        yield line


# --- defences of random features


def make_case(name: str, seed: int) -> Case:
    dim = {"dim": 30} if name == "sphere" else {}
    everything = load(DataConfig.parse(name=name, samples=SAMPLES + FRESH, seed=seed, **dim))
    data, fresh = (
        replace(everything, inputs=everything.inputs[part], labels=everything.labels[part])
        for part in (slice(0, SAMPLES), slice(SAMPLES, None))
    )
    d = data.inputs.shape[1]
    config = RandomFeaturesConfig(params=RATIO * d * SAMPLES, seed=seed)
    victim = train_random_features(config, data, hold(draw_rows(config, d)))
    return Case(name, data, fresh, victim.observation.told(None))


def defence_lines(case: Case, seed: int, seconds: float) -> Iterator[Line]:
    for text in PUBLISHED[case.name].split():
        published = publish(case.undefended, parse_defences(text, seed=seed), inputs=case.data.inputs)
        yield measure(case, text, published, seed, seconds)
    for share in (0.01, 1.0) if case.name == "sphere" else (1.0,):
        penalty = share * case.features.p / SAMPLES
        config = RandomFeaturesConfig(params=case.features.p, seed=seed, fit="ridge", ridge=penalty)
        victim = train_random_features(config, case.data, case.features.rows)
        yield measure(case, f"ridge {penalty:.3g}", victim.observation.told(None), seed, seconds)
    for until in (0.1, 0.5) if case.name == "sphere" else (0.5,):
        yield measure(case, f"stopped at loss {until:g}", stopped_early(case, until), seed, seconds)
    targets = case.data.labels[:, None]
    for noise, steps in PRIVATE[case.name]:
        clip = math.sqrt(case.features.p / 2)  # E ||φ(x)||² = p/2 on the sphere, whatever the data
        recipe = PrivateRecipe(clip=clip, noise=noise, steps=steps, seed=seed)
        knowledge = case.undefended.knowledge
        head = train_private_head(case.features, case.data.inputs, targets, "square", recipe, knowledge)
        name = f"dp sigma {noise:g}, epsilon {head.epsilon:.3g}"
        yield measure(case, name, head.observation, seed, seconds)


def stopped_early(case: Case, until: float) -> Observation:
    """Gradient descent from zero on the square loss, ended far above its floor."""
    head = nn.Linear(case.features.p, 1, bias=False)
    nn.init.zeros_(head.weight)
    targets = case.data.labels[:, None]
    trained = train_module(head, case.features(case.data.inputs), targets, "square", Recipe(until=until))
    return replace(case.undefended, weights=trained.state["weight"])


def measure(case: Case, defence: str, published: Observation, seed: int, seconds: float) -> Line:
    labels = case.fresh.labels
    expected, outputs = (outputs_of(seen, case.fresh.inputs) for seen in (case.undefended, published))
    moved = float((outputs - expected).square().sum() / expected.square().sum())
    test = float((outputs - labels).square().mean() / labels.var()) if case.name == "sphere" else None
    fitted = outputs_of(published, case.data.inputs)
    numbers: dict[str, float | int | str | None] = {
        "rows": published.features.p,
        "train": float((fitted - case.data.labels).square().mean()),
        "moved": moved,
        "test": test,
        "floor": floor(published, case.data.inputs),
    }
    return Line(case.name, defence, numbers | attacked(published, case.data.inputs, seed, seconds))


def ridge(seen: Observation) -> RidgeFeatures:
    assert isinstance(seen.features, RidgeFeatures)
    return seen.features


def floor(seen: Observation, truth: Tensor) -> float:
    return SpanLoss(ridge(seen), seen.weights, torch.float64).fit(truth.double()).loss


def outputs_of(seen: Observation, inputs: Tensor) -> Tensor:
    return seen.features(inputs) @ seen.weights[0]


def attacked(seen: Observation, truth: Tensor, seed: int, seconds: float) -> dict[str, float | int | str | None]:
    found = run_attack(seen, SplitNewton(), seed=seed, limits=Limits(seconds)).reconstruction
    return {
        "rho": reconstruction_error(truth, found.candidates),
        "outcome": found.outcome.value,
        "found": len(found.candidates),
        "seconds": round(found.seconds, 1),
    }


# --- what is known of the start


def start_lines(folder: Path | None, seed: int, seconds: float) -> Iterator[Line]:
    data = load_images(folder)
    n, d = data.inputs.shape
    outputs = max(1, len(data.class_names))
    config = TwoLayerConfig(width=RATIO * d * n // outputs, outputs=outputs, seed=seed)
    victim = train_two_layer(config, data)
    began = time.monotonic()
    guess = guess_start(victim.head, config)
    searched = time.monotonic() - began
    assert guess is not None, "the seed is among those that are tried"
    assert torch.equal(guess, victim.initial_head)
    zero = train_two_layer(config.model_copy(update={"zero_head": True}), data)
    seen = victim.observation.told(None)
    cases = {
        f"known ({GUESSED_SEEDS} seeds: {searched:.1f} s)": seen,
        "zero, and known to be": zero.observation.told(None),
        **{
            f"distribution only, size {size:g}": replace(seen, weights=seen.weights + size * victim.initial_head)
            for size in (0.01, 0.1, 1.0)
        },
    }
    for name, observation in cases.items():
        yield start_line(data, name, observation, victim, seed, seconds)


def load_images(folder: Path | None) -> Dataset:
    if folder is None:
        return load(DataConfig.parse(name="faces", samples=5))
    return load(DataConfig.parse(name="cifar10", samples=SAMPLES, side=8, classes=CLASSES, data_dir=folder))


def start_line(data: Dataset, name: str, seen: Observation, victim: TwoLayerVictim, seed: int, seconds: float) -> Line:
    change = victim.observation.weights.double()
    unknown = seen.weights.double() - change if "distribution" in name else torch.zeros(())
    told = attacked(seen.told(len(data.inputs)), data.inputs, seed, seconds)
    numbers: dict[str, float | int | str | None] = {
        "equations": seen.weights.numel(),
        "noise/signal": float(unknown.square().sum() / change.square().sum()),
        "floor": floor(seen, data.inputs),
        "rho, n told": told["rho"],
    }
    return Line("start", name, numbers | attacked(seen, data.inputs, seed, seconds))


def guess_start(head: Tensor, config: TwoLayerConfig) -> Tensor | None:
    """The initial head whose seed is known up to a search: the trained one still points its way."""
    for seed in range(GUESSED_SEEDS - 1, -1, -1):  # the worst case: the right one comes last
        drawn = draw_head(config.model_copy(update={"seed": seed}), len(head), head.dtype)
        if float(torch.nn.functional.cosine_similarity(drawn.flatten(), head.flatten(), dim=0)) > 0.2:
            return drawn
    return None


if __name__ == "__main__":
    main()
