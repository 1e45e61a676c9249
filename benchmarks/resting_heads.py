"""How much a head that came to rest gives away: members among 1,000 records, on real embeddings, beside baselines.

    python benchmarks/resting_heads.py --data-dir DIR [--splits 2] [--first 1000] [--heads rested] [--json]

Splits are numbered. No rule was chosen by those from 1000 on.

The first 1,017 images of CIFAR-10's first batch (the cut that the tests use holds as many), and scikit-learn's 1,797
digits. Embeddings of 512 numbers by random convolutions, or by a small network that was trained on 260 (300) images of
its own. n = 200 records train a head of 10 outputs; the pool has 1,000 records (757 for the trained extractor on
CIFAR-10) with all or half of the members. A table per kind of embeddings: each cell is the share of members that is
found at 1 % and at 0.1 % false alarms. Intervals are those of Clopper and Pearson (95 %) for the first, over all splits
together; `--json` has all of them, and every baseline by itself.

    confidence   the probability of the likeliest class
    loss         the loss of the record's own class
    ratio        the loss beside that of 16 heads of an attacker, each trained on 200 of the records that the head was
                 not trained on, those of the pool among them (an offline likelihood-ratio attack, Carlini et al. 2022)
    aligned      the angle to the row space of the weights (`attacks/probes/alignment.py`), without labels
    exhume rank  `attacks/probes/ranking.py` with labels, half of the others as its non-members: the part of a record in
                 what holds the head in place, or the loss, whichever stands out more
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from exhume.attacks.probes.alignment import align
from exhume.attacks.probes.embedding_span import embedding_span
from exhume.attacks.probes.ranking import Probe, rank_records
from exhume.metrics.detection import detection_rate, rate_interval

MEMBERS, POOL, OUTPUTS, SHADOWS, PENALTY = 200, 1000, 10, 16, 5e-3
TARGET, SHALLOW = 0.9, 1e-2
OURS = "exhume rank"
STATISTICS = ("confidence", "loss", "ratio", "aligned", OURS)


@dataclass(frozen=True)
class Line:
    embeddings: str
    head: str
    cover: float
    others: int
    found: dict[str, tuple[float, float]]
    """By statistic: the shares at 1 % and 0.1 %."""
    interval: dict[str, tuple[float, float]]
    explained: float


def cifar(data_dir: Path) -> tuple[Tensor, Tensor]:
    raw = np.fromfile(data_dir / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8).reshape(-1, 3073)[:1017]
    pixels = torch.from_numpy(raw[:, 1:] / 255.0).float().reshape(-1, 3, 32, 32)
    return (pixels - pixels.mean(dim=(0, 2, 3), keepdim=True)) / pixels.std(), torch.from_numpy(raw[:, 0].astype(int))


def digits(data_dir: Path) -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    return torch.from_numpy(pixels / 16).float().reshape(-1, 1, 8, 8), torch.from_numpy(labels)


def embed(images: Tensor, labels: Tensor, seen: int) -> tuple[Tensor, Tensor]:
    """Embeddings of all images but those that the extractor was trained on; of all, if it was drawn at random."""
    torch.manual_seed(0)
    order = torch.randperm(len(images))
    images, labels = images[order], labels[order]
    channels, side = images.shape[1], images.shape[2]
    if not seen:
        layers = [nn.Conv2d(channels, 128, 6 if side > 8 else 3, stride=2 if side > 8 else 1), nn.ReLU()]
        body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
    else:
        depth, parts = (3, 2048) if side > 8 else (2, 256)
        wide = [channels, 32, 64, 128][: depth + 1]
        pairs = itertools.pairwise(wide)
        layers = [part for a, b in pairs for part in (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU())]
        body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(parts, 512), nn.ReLU())
        model = nn.Sequential(body, nn.Linear(512, OUTPUTS))
        optimiser = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
        for _ in range(20):
            for batch in torch.randperm(seen).split(50):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimiser.step()
    with torch.no_grad():
        values = body(images[seen:]).double()
    return values / values.square().mean().sqrt(), labels[seen:]


def resting_lbfgs(rows: Tensor, labels: Tensor, tolerance: float = 1e-4) -> Tensor:
    """scikit-learn's LogisticRegression, by default at its own tolerance."""
    model = LogisticRegression(C=1 / (PENALTY * len(rows)), max_iter=20_000, tol=tolerance)
    model.fit(rows.numpy(), labels.numpy())
    head = torch.zeros(OUTPUTS, rows.shape[1] + 1, dtype=torch.float64)
    head[model.classes_] = torch.from_numpy(np.concatenate([model.coef_, model.intercept_[:, None]], axis=1))
    return head


def descended(kind: str, epochs: int) -> Callable[[Tensor, Tensor], Tensor]:
    """From PyTorch's own start, batches of 32, for so many epochs."""

    def train(rows: Tensor, labels: Tensor) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(rows.shape[1], OUTPUTS)
        optimiser: torch.optim.Optimizer
        if kind == "adam":
            optimiser = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=PENALTY)
        elif kind == "adamw":
            optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
        else:
            optimiser = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
        inputs = rows.float()
        for _ in range(epochs):
            for batch in torch.randperm(len(rows)).split(32):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
                optimiser.step()
        return torch.cat([model.weight, model.bias[:, None]], dim=1).detach().double()

    return train


HEADS = {
    "L-BFGS, L2": resting_lbfgs,
    "L-BFGS, L2, to 1e-9": lambda rows, labels: resting_lbfgs(rows, labels, 1e-9),
    "Adam, L2, 3000 epochs": descended("adam", 3000),
    "Adam, L2, 300 epochs": descended("adam", 300),
    "Adam, L2, 30 epochs": descended("adam", 30),
    "AdamW, 100 epochs": descended("adamw", 100),
    "SGD, 30 epochs": descended("sgd", 30),
}

REST = ("L-BFGS, L2", "Adam, L2, 3000 epochs", "Adam, L2, 300 epochs")
"""Heads of which the summary says whether 0.9 of the members are found at 1 % false alarms."""


RESTED = ("L-BFGS, L2", "Adam, L2, 3000 epochs")


def own_loss(head: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """log p(own class), the larger the better."""
    outputs = rows @ head[:, :-1].T + head[:, -1]
    return torch.log_softmax(outputs, dim=1).gather(1, labels[:, None])[:, 0]


def scores(head: Tensor, rows: Tensor, labels: Tensor, shadows: list[Tensor], members: int) -> tuple[Tensor, float]:
    outputs = rows @ head[:, :-1].T + head[:, -1]
    mine = own_loss(head, rows, labels)
    logits = torch.stack([_logit(own_loss(shadow, rows, labels)) for shadow in shadows])
    ratio = (_logit(mine) - logits.mean(dim=0)) / logits.std(dim=0).mean()
    extended = torch.cat([rows, torch.ones(len(rows), 1, dtype=torch.float64)], dim=1)
    mid = members + (len(rows) - members) // 2
    known = labels.double()
    probe = Probe(head, head, constant=True)
    ranking = rank_records(probe, rows[:mid], rows[mid:], "cross-entropy", None, known[:mid], known[mid:])
    stack = [
        torch.softmax(outputs, dim=1).amax(dim=1),
        mine,
        ratio,
        align(embedding_span(head), extended).score,
        torch.cat([ranking.score, ranking.non_member_score]),
    ]
    assert ranking.explained is not None
    return torch.stack(stack), ranking.explained


def _logit(log_probability: Tensor) -> Tensor:
    return log_probability - torch.log(-torch.expm1(log_probability.clamp_max(-1e-9)))


def measure(data_dir: Path, splits: range, heads: Sequence[str]) -> Iterator[Line]:
    for name, load, seen in (
        ("CIFAR-10, random convolutions", cifar, 0),
        ("CIFAR-10, trained network", cifar, 260),
        ("digits, random convolutions", digits, 0),
        ("digits, trained network", digits, 300),
    ):
        rows, labels = embed(*load(data_dir), seen)
        spread = torch.linalg.svdvals(rows - rows.mean(dim=0))
        print(f"{name}: {int((spread > SHALLOW * spread[0]).sum())} directions above {SHALLOW:.0%} of the widest")
        shadows = {seed: _shadows(rows, labels, seed) for seed in splits}
        for head in heads:
            yield from _lines(name, head, HEADS[head], rows, labels, shadows)


def _lines(
    name: str,
    title: str,
    train: Callable[[Tensor, Tensor], Tensor],
    rows: Tensor,
    labels: Tensor,
    shadows: Mapping[int, list[Tensor]],
) -> Iterator[Line]:
    rates: dict[float, list[list[tuple[float, float]]]] = {1.0: [], 0.5: []}
    explained: dict[float, list[float]] = {1.0: [], 0.5: []}
    counts: dict[float, int] = {}
    for seed in shadows:
        own, rest = _split(len(rows), seed)
        head = train(rows[own], labels[own])
        for cover in rates:
            shown = own[: round(cover * MEMBERS)]
            pool = torch.cat([shown, rest[: POOL - MEMBERS]])
            found, share = scores(head, rows[pool], labels[pool], shadows[seed], len(shown))
            inside, outside = found[:, : len(shown)], found[:, len(shown) :]
            explained[cover].append(share)
            counts[cover] = outside.shape[1]
            rates[cover].append(
                [
                    (detection_rate(a, b, 0.01), detection_rate(a, b, 0.001))
                    for a, b in zip(inside, outside, strict=True)
                ]
            )
    for cover, table in rates.items():
        means = torch.tensor(table).mean(dim=0).tolist()
        tries = len(shadows) * round(cover * MEMBERS)
        yield Line(
            embeddings=name,
            head=title,
            cover=cover,
            others=counts[cover],
            found={key: (a, b) for key, (a, b) in zip(STATISTICS, means, strict=True)},
            interval={
                key: rate_interval(round(a * tries), tries) for key, (a, _) in zip(STATISTICS, means, strict=True)
            },
            explained=sum(explained[cover]) / len(shadows),
        )


def _split(count: int, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[:MEMBERS], order[MEMBERS:]


def _shadows(rows: Tensor, labels: Tensor, seed: int) -> list[Tensor]:
    """Heads of an attacker who has records that were not trained on, the pool's among them: more than one has."""
    dice = torch.Generator().manual_seed(1000 + seed)
    _, rest = _split(len(rows), seed)
    found = []
    for _ in range(SHADOWS):
        chosen = rest[torch.randperm(len(rest), generator=dice)[:MEMBERS]]
        found.append(resting_lbfgs(rows[chosen], labels[chosen]))
    return found


def table(lines: list[Line]) -> str:
    """One head per line, for one kind of embeddings: the best of the baselines beside `exhume rank`, by cover."""
    rows = ["| head | rest | best baseline, all | `exhume rank`, all | best baseline, half | `exhume rank`, half |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for whole in (line for line in lines if line.cover == 1):
        half = next(line for line in lines if line.head == whole.head and line.cover < 1)
        cells = [whole.head, f"{whole.explained:.0%}"]
        for line in (whole, half):
            baselines = [found for name, found in line.found.items() if name != OURS]
            cells += [_rates(max(baselines)), _rates(line.found[OURS])]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _rates(found: tuple[float, float]) -> str:
    return f"{found[0]:.2f} / {found[1]:.2f}"


def widest(lines: list[Line], cover: float) -> float:
    """Half of the widest interval of `exhume rank`."""
    return max((line.interval[OURS][1] - line.interval[OURS][0]) / 2 for line in lines if line.cover == cover)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--heads", choices=("all", "rested"), default="all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began, lines = time.monotonic(), []
    splits = range(options.first, options.first + options.splits)
    for line in measure(options.data_dir, splits, tuple(HEADS) if options.heads == "all" else RESTED):
        lines.append(line)
        print(f"{line.embeddings}, {line.head}, {line.cover:.0%}: {_rates(line.found[OURS])}", file=sys.stderr)
    for name in dict.fromkeys(line.embeddings for line in lines):
        print(f"\n{name}\n\n{table([line for line in lines if line.embeddings == name])}\n")
    for cover in (1.0, 0.5):
        print(f"cover {cover:.0%}: intervals of exhume rank are {widest(lines, cover):.2f} to either side at most")
    for line in lines:
        if line.cover == 1 and line.head in REST:
            rate, (low, high) = line.found[OURS][0], line.interval[OURS]
            said = f"{rate:.3f} [{low:.2f}, {high:.2f}] ({'reached' if rate >= TARGET else 'missed'})"
            print(f"{line.embeddings}, {line.head}: {said}")
    print(f"{time.monotonic() - began:.0f} s")
    if options.json:
        print(json.dumps({"splits": options.splits, "first": options.first, "lines": [asdict(line) for line in lines]}))


if __name__ == "__main__":
    main()
