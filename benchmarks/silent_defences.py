"""What protects an ordinary network from the silent-units attack, and what it costs: tables of docs/defences.md.

    python benchmarks/silent_defences.py --data-dir DIR [--only "Adam;dropout 0.5"] [--part 0/2] [--seed 7] [--list]

CIFAR-10, n = 50, 3072-1000-1000-10, SGD with momentum 0.9, batches of 20, 600 steps; one seed. Each row is printed as
it is made. Beside what the attack finds stands what the defence leaves of the model: loss and accuracy on the training
images (as published, without dropout), and accuracy on 500 images that it did not see. With 50 images to learn from
that is about 20 %, give or take two points.

What is done to published weights is done to all layers: float16, bfloat16 and noise to every number, int8, int4 and
pruning to matrices (biases stay). What was pruned is zero, so an attacker knows where to fill it in: one row does so,
and is told the rank (`low_rank_completion.py`). DP-SGD is `victims/private.py` of
`exhume_papers`, with its epsilon for delta = 1e-5.

About 10 minutes on one core of a busy machine. Expect all 50 within 0.1 without a defence and with half of the
weights pruned and filled in again, and none with Adam, the noise of DP-SGD or a secret start.
"""

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from low_rank_completion import filled_in
from ordinary_networks import Trained, cifar, first_layer, flipped, network, train
from silent_data import pooled
from silent_scoring import attack
from torch import Tensor, nn

from exhume.defences.private import PrivateRecipe
from exhume.errors import ExhumeError
from exhume.layer_states import changed
from exhume_papers.victims.private import train_private_module

WIDTHS, SAMPLES, UNSEEN, SECONDS = (1000, 1000, 10), 50, 500, 30.0
COLUMNS = "within 0.1 | called | wrongly | median error | training loss | training accuracy | unseen accuracy | seconds"
SHIFT = 4  # pixels, of random crops


@dataclass(frozen=True, eq=False)
class Images:
    inputs: Tensor
    labels: Tensor
    unseen: Tensor
    unseen_labels: Tensor

    @classmethod
    def load(cls, data_dir: Path, samples: int = SAMPLES) -> "Images":
        inputs, labels = cifar(data_dir, samples + UNSEEN, first=300)
        return cls(inputs[:samples], labels[:samples], inputs[samples:], labels[samples:])

    def smaller(self, block: int) -> "Images":
        rows = (pooled(part, block) for part in (self.inputs, self.unseen))
        inputs, unseen = (part / part.std() for part in rows)
        return Images(inputs, self.labels, unseen, self.unseen_labels)


@dataclass(frozen=True, eq=False)
class Published:
    """What is given away: the model, and the start that an attacker takes for the true one. `also`: see `attack`.
    `end`: the first layer that is attacked, where an attacker made another one of the model's."""

    model: nn.Sequential
    start: Tensor
    images: Images
    note: str = ""
    also: Tensor | None = None
    end: Tensor | None = None


Defence = Callable[[Path, int], Published]


# --- training


def plainly(images: Images, seed: int, also: Tensor | None = None, **how: Any) -> Published:
    trained: Trained = train(images.inputs, images.labels, WIDTHS, seed=seed, **how)
    return Published(trained.model.eval(), trained.start, images, also=also)


def trained_with(**how: Any) -> Defence:
    return lambda data_dir, seed: plainly(Images.load(data_dir), seed, **how)


def with_flips(data_dir: Path, seed: int) -> Published:
    images = Images.load(data_dir)
    return plainly(images, seed, flipped(images.inputs), flips=True)


def with_crops(data_dir: Path, seed: int) -> Published:
    images = Images.load(data_dir)
    places = [(down, right) for down in range(2 * SHIFT + 1) for right in range(2 * SHIFT + 1)]
    every = torch.cat([cropped(images.inputs, *place) for place in places])
    return plainly(images, seed, every, augment=random_crops)


def cropped(rows: Tensor, down: int, right: int) -> Tensor:
    padded = nn.functional.pad(rows.reshape(-1, 3, 32, 32), (SHIFT,) * 4)
    return padded[:, :, down : down + 32, right : right + 32].reshape(len(rows), -1)


def random_crops(rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    places = torch.randint(0, 2 * SHIFT + 1, (len(rows), 2)).tolist()
    return torch.cat([cropped(row[None], *place) for row, place in zip(rows, places, strict=True)]), targets


def mixup(rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Zhang et al. 2018, one coefficient per pair, uniform."""
    share, other = torch.rand(len(rows), 1), torch.randperm(len(rows))
    return tuple(share * part + (1 - share) * part[other] for part in (rows, targets))  # type: ignore[return-value]


def few_dimensions(samples: int) -> Defence:
    """Images at 8 x 8, 192 numbers."""
    return lambda data_dir, seed: plainly(Images.load(data_dir, samples).smaller(4), seed)


def privately(noise: float) -> Defence:
    """DP-SGD: clip 1, expected batches of 10, 150 steps, two layers."""

    def make(data_dir: Path, seed: int) -> Published:
        images = Images.load(data_dir)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = network((images.inputs.shape[1], WIDTHS[0], WIDTHS[-1]))
        targets = nn.functional.one_hot(images.labels, WIDTHS[-1]).float()
        recipe = PrivateRecipe(clip=1.0, noise=noise, steps=150, batch=10, step_size=0.1, seed=seed)
        done = train_private_module(model, images.inputs, targets, "cross-entropy", recipe)
        assert isinstance(done.model, nn.Sequential)
        return Published(done.model, first_layer(model), images, note=f", epsilon {done.epsilon:.3g}")

    return make


# --- publishing


def rounded(weights: Tensor, bits: int) -> Tensor:
    """Each row of a matrix on a grid of its own, symmetric around zero."""
    step = weights.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (weights / step).round() * step


def noisy(weights: Tensor, share: float) -> Tensor:
    return weights + share * weights.std() * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))


def pruned(weights: Tensor, share: float) -> Tensor:
    return weights * (weights.abs() > weights.abs().flatten().kthvalue(round(share * weights.numel())).values)


def stored_as(kind: torch.dtype) -> Defence:
    return published(lambda weights: weights.to(kind).float())


def published(change: Callable[[Tensor], Tensor], matrices_only: bool = False) -> Defence:
    """An ordinary training, whose weights are changed before they are published."""

    def make(data_dir: Path, seed: int) -> Published:
        made = ordinary(data_dir, seed)
        model = copy.deepcopy(made.model)
        with torch.no_grad():
            for weights in model.parameters():
                if weights.ndim == 2 or not matrices_only:
                    weights.copy_(change(weights))
        return Published(model, made.start, made.images)

    return make


def pruned_and_filled_in(share: float) -> Defence:
    """Against pruning: the attacker knows which weights are missing."""
    prune = published(partial(pruned, share=share), matrices_only=True)

    def make(data_dir: Path, seed: int) -> Published:
        made = prune(data_dir, seed)
        return replace(made, end=filled_in(made.start, first_layer(made.model), rank=SAMPLES))

    return make


def secret_start(data_dir: Path, seed: int) -> Published:
    made = ordinary(data_dir, seed)
    guessed = train(made.images.inputs, made.images.labels, WIDTHS, seed=seed + 1, steps=0)
    return Published(made.model, guessed.start, made.images)


_ORDINARY: dict[int, Published] = {}


def ordinary(data_dir: Path, seed: int) -> Published:
    """Trained once for all rows that only change what is published."""
    if seed not in _ORDINARY:
        _ORDINARY[seed] = plainly(Images.load(data_dir), seed)
    return _ORDINARY[seed]


MOMENTUM = {"lr": 0.01, "momentum": 0.9}
DEFENCES: dict[str, Defence] = {
    "none": ordinary,
    "float16": stored_as(torch.float16),
    "bfloat16": stored_as(torch.bfloat16),
    "int8, a scale per row": published(partial(rounded, bits=8), matrices_only=True),
    "int4, a scale per row": published(partial(rounded, bits=4), matrices_only=True),
    "noise of 0.01 % of the weights": published(partial(noisy, share=1e-4)),
    "noise of 0.1 %": published(partial(noisy, share=1e-3)),
    "noise of 1 %": published(partial(noisy, share=1e-2)),
    "noise of 10 %": published(partial(noisy, share=0.1)),
    "a tenth of the weights pruned by size": published(partial(pruned, share=0.1), matrices_only=True),
    "half of them": published(partial(pruned, share=0.5), matrices_only=True),
    "half of them, filled in again (rank told)": pruned_and_filled_in(0.5),
    "the start kept secret": secret_start,
    "first layer frozen": trained_with(frozen=True),
    "weight decay 0.0005": trained_with(**MOMENTUM, weight_decay=5e-4),
    "weight decay 0.005": trained_with(**MOMENTUM, weight_decay=5e-3),
    "weight decay 0.05": trained_with(**MOMENTUM, weight_decay=0.05),
    "Adam": trained_with(optimiser="Adam"),
    "dropout 0.5": trained_with(dropout=0.5),
    "label smoothing 0.1": trained_with(smoothing=0.1),
    "gradients clipped to norm 1": trained_with(clip=1.0),
    "flips": with_flips,
    "crops, 4 pixels": with_crops,
    "mixup": trained_with(augment=mixup),
    "images of 8 x 8 (n = 50, d = 192)": few_dimensions(50),
    "more samples than dimensions (n = 250, d = 192)": few_dimensions(250),
    "DP-SGD, no noise": privately(0.0),
    "DP-SGD, noise 0.001": privately(0.001),
    "DP-SGD, noise 0.01": privately(0.01),
    "DP-SGD, noise 0.1": privately(0.1),
    "DP-SGD, noise 2": privately(2.0),
}


def row(name: str, made: Published, seed: int, seconds: float) -> str:
    """One line of the table."""
    images = made.images
    with torch.no_grad():
        outputs, unseen = made.model(images.inputs), made.model(images.unseen)
    loss = float(nn.functional.cross_entropy(outputs, images.labels))
    accuracies = [
        float((out.argmax(dim=1) == labels).float().mean())
        for out, labels in ((outputs, images.labels), (unseen, images.unseen_labels))
    ]
    use = f"{loss:.2g} | {100 * accuracies[0]:.0f} % | {100 * accuracies[1]:.0f} %"
    try:
        end = first_layer(made.model) if made.end is None else made.end
        states = changed(made.start, end, bias=True)
        told = attack(states, images.inputs, seed=seed, budget_seconds=seconds, also=made.also).score
    except ExhumeError:  # a first layer that did not change, or fewer than two units per sample
        return f"| {name}{made.note} | nothing to attack | 0 of {len(images.inputs)} | 0 | 0 | - | {use} | - |"
    near = f"{told.within} of {told.samples}"
    found = f"{near} | {told.called} | {told.wrong} | {told.median:.0e}"
    return f"| {name}{made.note} | {told.rank or 'none'} | {found} | {use} | {told.seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", help="names of defences, with semicolons between")
    parser.add_argument("--part", default="0/1", help="0/2 and 1/2 are the two halves")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--budget-seconds", type=float, default=SECONDS)
    parser.add_argument("--list", action="store_true", help="only the names of the defences")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    names = list(DEFENCES)[part::parts] if options.only is None else options.only.split(";")
    if options.list:
        print("\n".join(names))
        return
    if options.data_dir is None:
        parser.error("expected --data-dir with CIFAR-10, found none")
    torch.set_num_threads(1)
    began = time.monotonic()
    print(f"| defence | rank | {COLUMNS} |\n| {' | '.join(['---'] * (2 + COLUMNS.count('|') + 1))} |")
    for name in names:
        made = DEFENCES[name](options.data_dir, options.seed)
        print(row(name, made, options.seed, options.budget_seconds), flush=True)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
