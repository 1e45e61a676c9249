"""A hidden layer behind a frozen extractor: the table of docs/silent-units.md, "Behind a frozen extractor".

    python benchmarks/frozen_extractors.py --data-dir DIR [--cases tanh,...] [--seeds 3]

CIFAR-10, n = 20 images; the head is p-1024-10, SGD with momentum 0.9 at 0.05, batches of 10, cross-entropy, 200 steps.
"Trained" extractors learned 600 other images; the rest are as torch draws them. `exhume.audit` attacks, and 20 other
images are its control. One entry per seed where they differ. A minute or two on one core.
"""

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from ordinary_networks import cifar
from torch import Tensor, nn

import exhume

N = 20
FIRST_TO_LEARN, TO_LEARN = 400, 600


@dataclass(frozen=True)
class Case:
    title: str
    make: Callable[[], list[nn.Module]]
    width: int
    side: int = 32
    learned: bool = False


def _convolutions(*tail: nn.Module, norm: bool = False) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for a, b in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(a, b, 3, 2, 1), *([nn.BatchNorm2d(b)] if norm else []), nn.ReLU()]
    return [*layers, *tail]


def _dense(width: int, activation: type[nn.Module]) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(192, width), activation()]


def _pooled() -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(2), nn.Flatten()


CASES = {
    "tanh": Case("dense 192-256, tanh, images of 8 x 8", lambda: _dense(256, nn.Tanh), 256, 8),
    "relu": Case("dense 192-256, ReLU, images of 8 x 8", lambda: _dense(256, nn.ReLU), 256, 8),
    "wide": Case("dense 192-768, ReLU, images of 8 x 8", lambda: _dense(768, nn.ReLU), 768, 8),
    "conv-norm": Case(
        "two convolutions, batch norm, pooled, trained", lambda: _convolutions(*_pooled(), norm=True), 256, learned=True
    ),
    "conv-tanh": Case(
        "two convolutions, dense, tanh, trained",
        lambda: _convolutions(nn.Flatten(), nn.Linear(4096, 256), nn.Tanh()),
        256,
        learned=True,
    ),
    "conv": Case("two convolutions, pooled, trained", lambda: _convolutions(*_pooled()), 256, learned=True),
    "random": Case("two convolutions, pooled, not trained", lambda: _convolutions(*_pooled()), 256),
}


class Behind(nn.Module):
    def __init__(self, extractor: nn.Module, width: int) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Linear(1024, 10))

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(self.extractor(inputs))
        return found


def images(data_dir: Path, n: int, first: int, side: int) -> tuple[Tensor, Tensor]:
    rows, labels = cifar(data_dir, n, first)
    return nn.functional.interpolate(rows.reshape(-1, 3, 32, 32), size=side, mode="area"), labels


def extractor(case: Case, data_dir: Path) -> nn.Module:
    made = nn.Sequential(*case.make())
    if case.learned:
        inputs, labels = images(data_dir, TO_LEARN, FIRST_TO_LEARN, case.side)
        model = nn.Sequential(made, nn.Linear(case.width, 10))
        steps = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(15):
            for chosen in torch.randperm(len(inputs)).split(50):
                steps.zero_grad()
                nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
                steps.step()
    return made.eval()


def line(case: Case, data_dir: Path, seed: int) -> tuple[str, ...]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Behind(extractor(case, data_dir), case.width)
        both, labels = images(data_dir, 2 * N, 100 * seed, case.side)
        inputs, others = both[:N], both[N:]
        before = copy.deepcopy(model.state_dict())
        steps = torch.optim.SGD(model.head.parameters(), lr=0.05, momentum=0.9)
        for _ in range(200):
            chosen = torch.randperm(N)[:10]
            steps.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[:N][chosen]).backward()
            steps.step()
    with torch.no_grad():
        embedded = nn.functional.normalize(model.extractor(inputs))
    alike = float((embedded @ embedded.T).mean())
    began = time.monotonic()
    done = exhume.audit(model, initial=before, truth=inputs, control=others, budget_seconds=120)
    seconds = time.monotonic() - began
    said, silent = done.summary, done.subject.attempts[0]
    ours = said["method"] == "silent-units"
    rank = silent["note"].partition("has rank ")[2].partition(" ")[0]
    back = "inputs" if ours and said["reads"] == "inputs" else "embeddings" if ours else "-"
    worst = "-" if not ours else f"{said['worst_relative_error']:.0e}"
    sure = str(said["samples_trusted"]) if ours else "0"
    counts = str(said["recovered"]), sure, str(said["control"]["recovered"])
    return f"{alike:.2f}", rank, back, *counts, worst, f"{seconds:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("| extractor | mean cosine | rank | what came back | records | called | control | worst error | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.cases.split(","):
        lines = [line(CASES[name], options.data_dir, seed) for seed in range(options.seeds)]
        columns = ["; ".join(column if len(set(column)) > 1 else column[:1]) for column in zip(*lines, strict=True)]
        print(f"| {CASES[name].title} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
