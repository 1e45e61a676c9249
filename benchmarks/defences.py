"""What defences cost the model, and what they cost an attack, as tables in Markdown. n is never told.

    python benchmarks/defences.py [--parts sphere,faces,start,decay] [--data-dir FOLDER] [--patience 1] [--json FILE]

sphere (d = 30) and faces (d = 625): random features, relu, n = 10, p = 6dn. Columns:

    rows     equations that are left to an attack
    train    mean squared error of the published model on its training labels
    moved    ||f - f*||² / ||f*||² on fresh inputs: how far its outputs are from those of the undefended fit f*
    test     mean squared error on fresh labels over their variance (sphere only: labels of faces mean nothing)
    floor    the loss of Eq. 11 at the true data: 0 if the published weights still are combinations of the features
    rho      the attack's error, its outcome, the candidates it ended with, its seconds

start: a two-layer network (CIFAR-10 at 8 x 8 pixels if --data-dir holds it, else faces), p_L = 6dn, and what an
attacker can do who knows more or less about the head that training began with: its values, its seed up to a search (of
which only the trained head is used, and which also has to guess how much of it weight decay has left), that it is zero,
or only its distribution. Then it is noise on the change of the head; size 1 is N(0, 1/h), smaller ones are computed and
not trained.

decay: the same network trained with weight decay, so that W(T) = c W(0) + what features explain. The change of the head
is taken with c = 1, with the c of the recipe, and with the c that least squares finds in W(T) and W(0) alone.

Takes about 4 minutes on one core. Noise keeps an attack from converging: it is ended after a few seconds, times
--patience.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.running.start import find_start, scale_left
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.defences.kinds import parse_defences, publish
from exhume.defences.private import PrivateRecipe, train_private_head
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import hold
from exhume.metrics.errors import reconstruction_error
from exhume.observation import Observation
from exhume_papers.victims.descent import train_module
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, TwoLayerVictim, train_two_layer

SAMPLES, RATIO, FRESH = 10, 6, 90
SECONDS = {"sphere": 5.0, "faces": 8.0, "start": 8.0, "decay": 8.0}
PUBLISHED = {
    "sphere": "none fp16 bf16 int8 prune50 obs50 prune75 obs75 obs90 prune50+int8 noise0.01 noise0.03 noise0.1",
    "faces": "none int8 prune50 obs50 noise0.01 noise0.1",
}
PRIVATE = {"sphere": ((0.0, 200), (0.003, 200), (0.03, 200), (1.0, 200), (1.0, 20)), "faces": ((0.03, 200),)}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
GUESSED_SEEDS = 1000
DECAYS = (1e-3, 1e-2)


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
    parser.add_argument("--parts", default="sphere,faces,start,decay")
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
        elif part == "decay":
            found = decay_lines(options.data_dir, options.seed, seconds)
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
            print(f"\n| {' | '.join([part, *line.numbers])} |\n| {' | '.join(['---'] * (1 + len(line.numbers)))} |")
        shown = (f"{value:.2g}" if isinstance(value, float) else str(value) for value in line.numbers.values())
        print(f"| {' | '.join([line.defence, *shown])} |", flush=True)
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
    return Case(name, data, fresh, victim.observation.knowing(None))


def defence_lines(case: Case, seed: int, seconds: float) -> Iterator[Line]:
    for text in PUBLISHED[case.name].split():
        published = publish(case.undefended, parse_defences(text, seed=seed), inputs=case.data.inputs)
        yield measure(case, text, published, seed, seconds)
    for share in (0.01, 1.0) if case.name == "sphere" else (1.0,):
        penalty = share * case.features.p / SAMPLES
        config = RandomFeaturesConfig(params=case.features.p, seed=seed, fit="ridge", ridge=penalty)
        victim = train_random_features(config, case.data, case.features.rows)
        yield measure(case, f"ridge {penalty:.3g}", victim.observation.knowing(None), seed, seconds)
    for until in (0.1, 0.5) if case.name == "sphere" else (0.5,):
        yield measure(case, f"stopped at loss {until:g}", stopped_early(case, until), seed, seconds)
    targets = case.data.labels[:, None]
    for noise, steps in PRIVATE[case.name]:
        clip = math.sqrt(case.features.p / 2)  # E ||φ(x)||² = p/2 on the sphere, whatever the data
        recipe = PrivateRecipe(clip=clip, noise=noise, steps=steps, seed=seed)
        knowledge = case.undefended.knowledge
        head = train_private_head(case.features, case.data.inputs, targets, recipe, knowledge)
        name = f"dp sigma {noise:g}, epsilon {head.epsilon:.3g}"
        yield measure(case, name, head.observation, seed, seconds)


def stopped_early(case: Case, until: float) -> Observation:
    """Gradient descent from zero on the square loss, ended far above its floor."""
    head = nn.Linear(case.features.p, 1, bias=False)
    nn.init.zeros_(head.weight)
    targets = case.data.labels[:, None]
    trained = train_module(head, case.features(case.data.inputs), targets, "square", DescentRecipe(until=until))
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
    config = network(data, GUESSED_SEEDS - 1 - seed)  # the worst case: the right seed comes last
    victim = train_two_layer(config, data)
    began = time.monotonic()
    start = find_start(replace(victim.observation, **seed_known(victim, data, config)), GUESSED_SEEDS)
    searched = time.monotonic() - began
    assert start.seed == config.seed
    zero = train_two_layer(config.model_copy(update={"zero_head": True, "initial": "zero"}), data)
    seen = victim.observation.knowing(None)
    cases = {
        "known": seen,
        f"seed ({GUESSED_SEEDS} tried in {searched:.1f} s, c = {start.scale:.4f})": start.observation.knowing(None),
        "zero": zero.observation.knowing(None),
        **{
            f"distribution only, size {size:g}": replace(seen, weights=seen.weights + size * victim.initial_head)
            for size in (0.01, 0.1, 1.0)
        },
    }
    for name, observation in cases.items():
        yield start_line(data, name, observation, victim, seed, seconds)


def decay_lines(folder: Path | None, seed: int, seconds: float) -> Iterator[Line]:
    data = load_images(folder)
    for decay in DECAYS:
        recipe = DescentRecipe(weight_decay=decay, steps=2000)
        victim = train_two_layer(network(data, seed).model_copy(update={"recipe": recipe}), data)
        scales = {"1": 1.0, "recipe": victim.scale, "least squares": scale_left(victim.head, victim.initial_head)}
        for name, scale in scales.items():
            weights = victim.head - scale * victim.initial_head
            seen = replace(victim.observation, weights=weights).knowing(None)
            numbers: dict[str, float | int | str | None] = {"c": f"{scale:.4f}", "floor": floor(seen, data.inputs)}
            found = attacked(seen, data.inputs, seed, seconds)
            yield Line("decay", f"weight decay {decay:g}, c: {name}", numbers | found)


def network(data: Dataset, seed: int) -> TwoLayerConfig:
    n, d = data.inputs.shape
    outputs = max(1, len(data.class_names))
    return TwoLayerConfig(width=RATIO * d * n // outputs, outputs=outputs, seed=seed)


def seed_known(victim: TwoLayerVictim, data: Dataset, config: TwoLayerConfig) -> dict[str, Any]:
    """What an observation says where the attacker is left to search for the seed."""
    told = train_two_layer(
        config.model_copy(update={"initial": "seed", "recipe": DescentRecipe(steps=1)}), data
    ).observation
    return {"weights": victim.head, "knowledge": told.knowledge, "start": told.start}


def load_images(folder: Path | None) -> Dataset:
    if folder is None:
        return load(DataConfig.parse(name="faces", samples=5))
    return load(DataConfig.parse(name="cifar10", samples=SAMPLES, side=8, classes=CLASSES, data_dir=folder))


def start_line(data: Dataset, name: str, seen: Observation, victim: TwoLayerVictim, seed: int, seconds: float) -> Line:
    change = victim.observation.weights.double()
    unknown = torch.zeros(()) if name == "zero" else seen.weights.double() - change
    told = attacked(seen.knowing(len(data.inputs)), data.inputs, seed, seconds)
    numbers: dict[str, float | int | str | None] = {
        "equations": seen.weights.numel(),
        "noise/signal": float(unknown.square().sum() / change.square().sum()),
        "floor": floor(seen, data.inputs),
        "rho, n told": told["rho"],
    }
    return Line("start", name, numbers | attacked(seen, data.inputs, seed, seconds))


if __name__ == "__main__":
    main()
