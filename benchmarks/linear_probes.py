"""Which statistic tells the training records of a linear probe from others? On CIFAR-10 images, frozen extractors.

    python benchmarks/linear_probes.py --data-dir DIR [--splits 5] [--json]

Takes the first 86 images of each class. 30 of each train one of the extractors; the other 560 are split anew for every
trial into n training images, 100 candidates that are none, and the rest, which calibrate. `cover` is the share of the
training images that is among the candidates. Each cell is the AUC and, after the slash, the share of training records
that is found at 1 % false alarms, as means over the splits.

    distance   share of the embedding inside the row space of the weight change: the plain distance to the span
    aligned    the same angle after whitening with the embeddings' covariance (`attacks/probes/alignment.py`)
    fit        what the head says of the record, against what it was trained to say (`attacks/probes/head_fit.py`)
    score      the larger of the two, in units of their spread among non-members: what `exhume rank` gives
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from exhume.attacks.probes.alignment import align
from exhume.attacks.probes.head_fit import head_fit
from exhume.attacks.probes.ranking import Probe, rank_records
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.metrics.detection import detection_rate, roc_auc
from exhume_papers.data.cifar10 import STANDARD_NAMES
from exhume_papers.victims.frozen import train_head
from exhume_papers.victims.losses import LossName
from exhume_papers.victims.recipe import DescentRecipe

PER_CLASS, FOR_EXTRACTOR, OTHER_CANDIDATES = 86, 30, 100
STATISTICS = ("distance", "aligned", "fit", "score")


@dataclass(frozen=True)
class Head:
    """How a head is trained: on one-hot classes, or on animal against vehicle."""

    name: str
    loss: LossName
    recipe: DescentRecipe
    binary: bool = False


HEADS = (
    Head("square, to the end", "square", DescentRecipe(method="closed-form")),
    Head("square, 200 steps", "square", DescentRecipe(steps=200, until=0)),
    Head("cross-entropy, 500 steps", "cross-entropy", DescentRecipe(steps=500, until=0)),
    Head("cross-entropy, 5000 steps", "cross-entropy", DescentRecipe(steps=5000, until=0)),
    Head("square, decay 1e-2", "square", DescentRecipe(method="closed-form", weight_decay=1e-2)),
    Head("one output, 200 steps", "square", DescentRecipe(steps=200, until=0), binary=True),
)
VEHICLES = torch.tensor([STANDARD_NAMES.index(name) for name in ("airplane", "automobile", "ship", "truck")])


@dataclass(frozen=True)
class Line:
    extractor: str
    features: int
    n: int
    head: str
    cover: float
    weights_per_sample: float
    training_loss: float
    auc: dict[str, float]
    found: dict[str, float]


def random_convolutions(images: Tensor, labels: Tensor) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 128, 6, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def trained_network(images: Tensor, labels: Tensor) -> nn.Module:
    """A small convolutional network, trained by Adam on images that no head is trained on."""
    body = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 512),
        nn.ReLU(),
    )
    model = nn.Sequential(body, nn.Linear(512, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
    for _ in range(20):
        for batch in torch.randperm(len(images)).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
    return body


EXTRACTORS = {"random convolutions": random_convolutions, "trained network": trained_network}


def embed(name: str, images: Tensor, labels: Tensor, seen: Tensor) -> Tensor:
    """Embeddings of the images that the extractor has not seen, scaled to a mean square of 1 an entry."""
    torch.manual_seed(0)
    extractor = EXTRACTORS[name](images[seen], labels[seen]).eval()
    with torch.no_grad():
        values = extractor(images[~seen]).double()
    return values / values.square().mean().sqrt()


def trial(embeddings: Tensor, labels: Tensor, n: int, head: Head, cover: float, seed: int) -> tuple[Tensor, ...]:
    """Scores of the four statistics for members and for others, and the training loss."""
    order = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(seed))
    trained, others = order[:n], order[n:]
    shown = trained[: max(1, round(cover * n))]
    if head.binary:
        targets = torch.where(torch.isin(labels, VEHICLES), 1.0, -1.0)[:, None].double()
    else:
        targets = nn.functional.one_hot(labels, 10).double()
    h = embeddings.shape[1]
    model = nn.Sequential(nn.Identity(), nn.Linear(h, targets.shape[1])).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    done = train_head(model, "1", embeddings[trained], targets[trained], head.loss, head.recipe, (h,))
    weights = torch.cat([done.state["1.weight"], done.state["1.bias"][:, None]], dim=1)
    probe = Probe(weights, weights, constant=True)
    records = embeddings[torch.cat([shown, others[:OTHER_CANDIDATES]])]
    calibration = embeddings[others[OTHER_CANDIDATES:]]
    ranking = rank_records(probe, records, calibration, head.loss)
    pool = probe.embed(torch.cat([records, calibration]), "the records")
    scores = torch.stack(
        [
            ranking.span.share(pool),
            align(ranking.span, pool).score,
            head_fit(weights, pool, head.loss),
            torch.cat([ranking.score, ranking.non_member_score]),
        ]
    )
    return scores[:, : len(shown)], scores[:, len(shown) :], torch.tensor(done.descent.loss)


def measure(splits: int, data_dir: Path | None) -> Iterator[Line]:
    data = load(
        DataConfig.parse(name="cifar10", samples=10 * PER_CLASS, classes=STANDARD_NAMES, data_dir=data_dir, norm="keep")
    )
    images, labels = data.inputs.reshape(-1, 3, 32, 32), data.class_index.long()
    seen = torch.arange(len(labels)) % PER_CLASS < FOR_EXTRACTOR
    for extractor in EXTRACTORS:
        embeddings = embed(extractor, images, labels, seen)
        for n in (20, 100):
            for head in HEADS:
                for cover in (1.0, 0.1):
                    yield average(extractor, embeddings, labels[~seen], n, head, cover, splits)


def average(extractor: str, embeddings: Tensor, labels: Tensor, n: int, head: Head, cover: float, splits: int) -> Line:
    rates: list[list[float]] = []
    areas: list[list[float]] = []
    losses = []
    for seed in range(splits):
        members, others, loss = trial(embeddings, labels, n, head, cover, seed)
        areas.append([roc_auc(*pair) for pair in zip(members, others, strict=True)])
        rates.append([detection_rate(*pair) for pair in zip(members, others, strict=True)])
        losses.append(float(loss))
    means = [torch.tensor(table).mean(dim=0).tolist() for table in (areas, rates)]
    outputs = 1 if head.binary else 10
    return Line(
        extractor=extractor,
        features=embeddings.shape[1],
        n=n,
        head=head.name,
        cover=cover,
        weights_per_sample=outputs * embeddings.shape[1] / n,
        training_loss=sum(losses) / splits,
        auc=dict(zip(STATISTICS, means[0], strict=True)),
        found=dict(zip(STATISTICS, means[1], strict=True)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began, lines = time.monotonic(), []
    print(f"{'extractor':20} {'n':>4} {'head':26} {'cover':>5} {'kh/n':>5} {'loss':>7} | {' | '.join(STATISTICS)}")
    for line in measure(options.splits, options.data_dir):
        lines.append(line)
        cells = " | ".join(f"{line.auc[name]:.2f}/{line.found[name]:.2f}" for name in STATISTICS)
        print(
            f"{line.extractor:20} {line.n:4} {line.head:26} {line.cover:5.0%} {line.weights_per_sample:5.0f} "
            f"{line.training_loss:7.1e} | {cells}",
            flush=True,
        )
    print(f"{time.monotonic() - began:.0f} s")
    if options.json:
        print(json.dumps({"splits": options.splits, "lines": [asdict(line) for line in lines]}))


if __name__ == "__main__":
    main()
