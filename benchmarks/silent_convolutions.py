"""What the change of a first convolution gives away: the tables of docs/silent-units.md, "Convolutions".

    python benchmarks/silent_convolutions.py --data-dir DIR [--cases k16n5,k8n1,...] [--seeds 3]

CIFAR-10, plain PyTorch: SGD with momentum 0.9 at 0.02, batches of 20, cross-entropy, 300 steps, a dense layer of ten
outputs on the flattened map unless a case says otherwise. The number of images is not told, and the truth is only used
for scoring: errors are over a patch's own norm, after one-to-one matching of distinct patches. One entry per seed where
they differ. The whole takes ten minutes on one core.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from ordinary_networks import cifar
from torch import Tensor, nn

import exhume
from exhume.attacks.probes.embedding_span import embedding_span
from exhume.attacks.silent.assembling import assemble, overlaps
from exhume.errors import ExhumeError
from exhume.layer_states import LayerStates, averaged, changed
from exhume.metrics.pieces import piece_errors
from exhume.networks.head import with_bias
from exhume.readings import Patches

SHAPE = (3, 32, 32)
OFFSET = 200  # images between the sets of two seeds


@dataclass(frozen=True)
class Case:
    """A convolution on n images, and what comes after it."""

    kernel: int
    stride: int
    channels: int
    n: int
    padding: int = 0
    after: str = "relu"
    state: str = "change"
    seconds: float = 60.0

    @property
    def title(self) -> str:
        told = f"{self.kernel} x {self.kernel}, stride {self.stride}, {self.channels} channels, n = {self.n}"
        told += f", padding {self.padding}" if self.padding else ""
        told += "" if self.after == "relu" else f", {AFTER[self.after]}"
        return told + (", one gradient" if self.state == "gradient" else "")


AFTER = {
    "average": "ReLU and global average pooling",
    "conv": "ReLU and another convolution",
    "max": "ReLU and max pooling of 2 x 2",
    "norm": "batch norm and ReLU",
    "gelu": "GELU",
    "nothing": "no activation (a patch embedding)",
}
CASES = {
    "k16n5": Case(16, 16, 768, 5),
    "k16n20": Case(16, 16, 768, 20),
    "k16n30": Case(16, 16, 768, 30),
    "average": Case(16, 16, 768, 10, after="average"),
    "conv": Case(16, 16, 768, 10, after="conv"),
    "overlap": Case(16, 8, 768, 8),
    "overlap8": Case(8, 4, 512, 1),
    "k8n1": Case(8, 8, 512, 1),
    "k8grad": Case(8, 8, 256, 1, state="gradient"),
    "k8pad": Case(8, 8, 512, 2, padding=4),
    "k11": Case(11, 4, 384, 1),
    "k8n4": Case(8, 8, 512, 4),
    "k8n6": Case(8, 8, 1024, 6),
    "k16c192": Case(16, 16, 192, 5),
    "max": Case(8, 4, 512, 1, after="max"),
    "norm": Case(16, 16, 768, 10, after="norm"),
    "gelu": Case(16, 16, 768, 5, after="gelu"),
    "nothing": Case(16, 16, 768, 10, after="nothing"),
    "alexnet": Case(11, 4, 64, 1),
    "k4": Case(4, 4, 512, 1),
    "k7": Case(7, 2, 64, 1, padding=3),
    "lenet": Case(5, 1, 6, 1),
    "k3": Case(3, 1, 64, 1, padding=1),
}


def victim(case: Case, images: Tensor, labels: Tensor, seed: int) -> LayerStates:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Conv2d(3, case.channels, case.kernel, case.stride, case.padding)
        body = nn.Sequential(layer, *_after(case), nn.Flatten())
        with torch.no_grad():
            width = body(images[:2]).shape[1]
        model = nn.Sequential(body, nn.Linear(width, 10))
        start = with_bias(layer.weight, layer.bias).clone()
        if case.state == "gradient":
            nn.functional.cross_entropy(model(images), labels).backward()
            assert layer.weight.grad is not None
            assert layer.bias is not None
            return averaged(with_bias(layer.weight.grad, layer.bias.grad), start, bias=True, source="update")
        made = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        for _ in range(300):
            chosen = torch.randperm(len(images))[:20]
            made.zero_grad()
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            made.step()
        return changed(start, with_bias(layer.weight, layer.bias).clone(), bias=True)


def _after(case: Case) -> tuple[nn.Module, ...]:
    match case.after:
        case "average":
            return nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        case "conv":
            return nn.ReLU(), nn.Conv2d(case.channels, 64, 2), nn.ReLU()
        case "max":
            return nn.ReLU(), nn.MaxPool2d(2)
        case "norm":
            return nn.BatchNorm2d(case.channels), nn.ReLU()
        case "gelu":
            return (nn.GELU(),)
        case "nothing":
            return ()
    return (nn.ReLU(),)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print(
        "| convolution | patches, of numbers | rank | within 0.1 | called | wrongly | median error | images "
        "| in the span: own, other | seconds |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.cases.split(","):
        case = CASES[name]
        lines = [_line(case, options.data_dir, seed) for seed in range(options.seeds)]
        # one entry where all seeds agree
        columns = ["; ".join(column if len(set(column)) > 1 else column[:1]) for column in zip(*lines, strict=True)]
        print(f"| {case.title} | {' | '.join(columns)} |", flush=True)


def _line(case: Case, data_dir: Path, seed: int) -> tuple[str, ...]:
    rows, labels = cifar(data_dir, 2 * case.n, first=OFFSET * seed)
    images, others = rows[: case.n], rows[case.n :]
    geometry = Patches(SHAPE, (case.kernel,) * 2, (case.stride,) * 2, (case.padding,) * 2)
    states = victim(case, images.reshape(-1, *SHAPE), labels[: case.n], seed)
    pieces = geometry(images)
    size = f"{pieces.shape[0] * pieces.shape[1]}, of {pieces.shape[2]}"
    span = embedding_span(states.target)
    own, other = (float(span.share(_extended(geometry(some))).median()) for some in (images, others))
    inside = f"{own:.3f}, {other:.3f}"
    began = time.monotonic()
    try:
        found = exhume.reconstruct(exhume.observe_layer(states), seed=seed, budget_seconds=case.seconds)
    except ExhumeError as problem:
        return size, "-", "refused: " + str(problem).split(",")[0], "0", "0", "-", "-", inside, "0"
    seconds = f"{time.monotonic() - began:.0f}"
    sure = torch.tensor(found.certificate.confidence) >= 0.5
    errors = piece_errors(pieces, found.inputs)
    wrong = 0
    if len(found.inputs):
        flat = pieces.flatten(0, 1).double()
        nearest = (torch.cdist(found.inputs.double(), flat) / flat.norm(dim=1)).amin(dim=1)
        wrong = int((sure & (nearest > 0.1)).sum())
    whole = len(assemble(found.inputs[sure], geometry).images) if overlaps(geometry) and bool(sure.any()) else None
    counts = str(int((errors < 0.1).sum())), str(int(sure.sum())), str(wrong), f"{float(errors.median()):.0e}"
    rank = "none" if found.facts["rank"] is None else str(found.facts["rank"])
    return size, rank, *counts, "-" if whole is None else f"{whole} of {case.n}", inside, seconds


def _extended(pieces: Tensor) -> Tensor:
    flat = pieces.flatten(0, 1).double()
    return torch.cat([flat, torch.ones(len(flat), 1, dtype=flat.dtype)], dim=1)


if __name__ == "__main__":
    main()
