"""Training replayed: how many samples come back, by optimiser, steps, width and number of samples.

    python benchmarks/replay.py --out FOLDER [--only NAME ...] [--budget SECONDS] [--seeds 0:1] [--picture FILE]

A Markdown table on digits of scikit-learn (8 x 8, divided by 16), default PyTorch layers with bias. The network before
training and the recipe are known, n is told; labels are told where the line says so. `called`: candidates that the
certificate calls recovered; `wrong`: those of them that are further than 0.1 from the sample that
they are assigned to. An attack that the budget stopped leaves a checkpoint in FOLDER, and the same command goes on from
it; `seconds` are those of all its runs. The picture has the digits of the last line above what came back of them.
"""

import argparse
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from torch import Tensor, nn

import exhume
from exhume.attacks.running.loop import Limits, run_attack
from exhume.picture_grid import from_rows
from exhume.recipe import Optimiser
from exhume.report.figures import draw_pairs

CLOSE = 0.1
HEADS = (
    *("victim", "seed", "n", "network", "steps", "iterations", "labels", "within 0.1"),
    *("median", "worst", "unexplained", "called", "wrong", "outcome", "seconds"),
)


@dataclass(frozen=True)
class Line:
    name: str
    optimiser: Optimiser
    rate: float
    steps: int
    n: int
    hidden: tuple[int, ...]
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int | None = None
    labels: bool = True


LINES = (
    Line("sgd-5", "sgd", 0.1, 30, 5, (128,)),
    Line("momentum-5", "sgd", 0.05, 30, 5, (128,), momentum=0.9),
    Line("batches-6", "sgd", 0.1, 30, 6, (128,), batch_size=3),
    Line("adam-5", "adam", 1e-3, 30, 5, (128,)),
    Line("adamw-5", "adamw", 1e-3, 30, 5, (128,), weight_decay=0.01),
    Line("adam-5-labels-unknown", "adam", 1e-3, 30, 5, (128,), labels=False),
    Line("adam-5-100-steps", "adam", 1e-3, 100, 5, (128,)),
    Line("adam-5-three-layers", "adam", 1e-3, 30, 5, (128, 128)),
    Line("adam-10", "adam", 1e-3, 50, 10, (512,)),
    Line("adam-20", "adam", 1e-3, 50, 20, (512,)),
    Line("adam-20-labels-unknown", "adam", 1e-3, 50, 20, (512,), labels=False),
)


def digits(n: int, seed: int) -> tuple[Tensor, Tensor]:
    data = load_digits()
    chosen = torch.randperm(len(data.data), generator=torch.Generator().manual_seed(seed))[:n]
    return torch.tensor(data.data)[chosen].float() / 16, torch.tensor(data.target)[chosen]


def trained(line: Line, inputs: Tensor, labels: Tensor, seed: int) -> exhume.Observation:
    torch.manual_seed(100 + seed)
    sizes, layers = (64, *line.hidden), list[nn.Module]()
    for inner, outer in pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(sizes[-1], 10))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    own = {"momentum": line.momentum} if line.optimiser == "sgd" else {}
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimiser = kinds[line.optimiser](model.parameters(), lr=line.rate, weight_decay=line.weight_decay, **own)
    stream, made = torch.Generator().manual_seed(seed), 0
    while made < line.steps:
        order = torch.arange(line.n) if line.batch_size is None else torch.randperm(line.n, generator=stream)
        for batch in order.split(line.batch_size or line.n)[: line.steps - made]:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimiser.step()
            made += 1
    recipe = exhume.Recipe(
        optimiser=line.optimiser,
        rate=line.rate,
        steps=line.steps,
        momentum=line.momentum,
        weight_decay=line.weight_decay,
        batch_size=line.batch_size,
        batch_seed=seed,
        labels=tuple(labels.tolist()) if line.labels else None,
    )
    return exhume.observe(model, initial=before, training=recipe)


def measured(line: Line, seed: int, budget: float, out: Path, picture: Path | None = None) -> str:
    inputs, labels = digits(line.n, seed)
    observation = trained(line, inputs, labels, seed).knowing(line.n)
    checkpoint = out / f"{line.name}-{seed}.safetensors"
    attacked = run_attack(observation, exhume.Replay(), seed=seed, limits=Limits(budget), checkpoint=checkpoint)
    found = attacked.reconstruction
    distances = torch.cdist(found.candidates, inputs) / inputs.norm(dim=1)
    candidates, samples = linear_sum_assignment(distances.numpy())
    errors = distances[candidates, samples]
    if picture is not None:
        shape = (1, 8, 8)
        draw_pairs(from_rows(inputs[samples], shape), from_rows(found.candidates[candidates], shape), picture)
    called = torch.tensor(found.certificate.confidence)[candidates] >= 0.5
    cells = (
        line.name,
        seed,
        line.n,
        "-".join(map(str, (64, *line.hidden, 10))),
        line.steps,
        found.iterations,
        "told" if line.labels else "unknown",
        int((errors < CLOSE).sum()),
        f"{float(errors.median()):.1e}",
        f"{float(errors.max()):.1e}",
        f"{found.loss**0.5:.1e}",
        int(called.sum()),
        int((called & (errors >= CLOSE)).sum()),
        found.outcome.value + (" (stopped)" if attacked.stopped else ""),
        f"{found.seconds:.0f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[line.name for line in LINES])
    parser.add_argument("--budget", type=float, default=540.0, help="seconds per attack")
    parser.add_argument("--seeds", default="0:1")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    first, last = (int(end) for end in asked.seeds.split(":"))
    asked.out.mkdir(parents=True, exist_ok=True)
    print("| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS), flush=True)
    for line in LINES:
        for seed in range(first, last):
            if not asked.only or line.name in asked.only:
                print(measured(line, seed, asked.budget, asked.out, asked.picture), flush=True)


if __name__ == "__main__":
    main()
