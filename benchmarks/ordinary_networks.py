"""Ordinary networks to attack: plain PyTorch, default layers with bias, raw data, torch's own optimisers.

Used by `silent_*.py`. Nothing here comes from exhume's own victims.
"""

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "hardtanh": nn.Hardtanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "elu": nn.ELU,
}
Augmentation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Rows and their targets (one-hot) to others, by torch's global stream."""


def leak_of(activation: str) -> float:
    """The share of a gradient that passes below zero, at the size that preactivations usually have."""
    at = torch.tensor([-0.5, 0.5], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(ACTIVATIONS[activation]().double()(at).sum(), at)
    return float(slope[0].abs() / slope[1].abs())


LEAKS = {name: leak_of(name) for name in ACTIVATIONS}


def cifar(data_dir: Path, n: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """CIFAR-10 images in file order, standardised with one mean and standard deviation."""
    path = data_dir / "cifar-10-batches-bin" / "data_batch_1.bin"
    raw = np.fromfile(path, dtype=np.uint8).reshape(-1, 3073)[first : first + n]
    values = torch.tensor(raw[:, 1:] / 255.0, dtype=torch.float32)
    return (values - values.mean()) / values.std(), torch.tensor(raw[:, 0].astype(np.int64))


def faces(n: int, seed: int, raw: bool) -> tuple[Tensor, Tensor]:
    """25 x 25 patches that ship with scikit-image, faces and others: raw in [0, 1], or standardised."""
    from skimage.data import lfw_subset

    values = torch.tensor(lfw_subset(), dtype=torch.float32).reshape(200, -1)
    chosen = torch.randperm(200, generator=torch.Generator().manual_seed(seed))[:n].sort().values
    rows = values[chosen]
    return (rows if raw else (rows - rows.mean()) / rows.std()), (chosen < 100).long()


def flipped(rows: Tensor) -> Tensor:
    return rows.reshape(-1, 3, 32, 32).flip(-1).reshape(len(rows), -1)


@dataclass(frozen=True, eq=False)
class Trained:
    """`kept`: the first layer after some steps; `average`: its moving average, where one was asked for."""

    model: nn.Sequential
    start: Tensor
    end: Tensor
    optimiser: Any
    inputs: Tensor
    kept: Mapping[int, Tensor] = field(default_factory=dict)
    average: Tensor | None = None


def first_layer(model: nn.Sequential) -> Tensor:
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    weight = layer.weight.detach().clone()
    return weight if layer.bias is None else torch.cat([weight, layer.bias.detach()[:, None]], dim=1)


def network(
    sizes: tuple[int, ...], activation: str = "relu", batch_norm: bool = False, dropout: float = 0.0
) -> nn.Sequential:
    """Dense layers with bias, drawn from torch's global stream; the last of them is linear."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if batch_norm else []), ACTIVATIONS[activation]()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def train(
    inputs: Tensor,
    labels: Tensor,
    widths: tuple[int, ...],
    *,
    seed: int,
    steps: int = 600,
    batch: int = 20,
    optimiser: str = "SGD",
    activation: str = "relu",
    batch_norm: bool = False,
    dropout: float = 0.0,
    flips: bool = False,
    augment: Augmentation | None = None,
    smoothing: float = 0.0,
    clip: float | None = None,
    frozen: bool = False,
    begin: nn.Sequential | None = None,
    keep: tuple[int, ...] = (),
    average: float | None = None,
    **options: Any,
) -> Trained:
    """Mini-batches at random, cross-entropy; SGD with momentum 0.9 at 0.01 unless options say otherwise.

    `begin`: a model to go on from. `clip`: the largest norm of a step's gradient. `frozen`: the first layer stays.
    `average`: the decay of a moving average of the first layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = network((inputs.shape[1], *widths), activation, batch_norm, dropout)
        if begin is not None:
            model = copy.deepcopy(begin)
        model.train()
        model[0].requires_grad_(not frozen)
        start, kept = first_layer(model), dict[int, Tensor]()
        mean = start.clone()
        options = options or ({"lr": 0.01, "momentum": 0.9} if optimiser == "SGD" else {"lr": 1e-3})
        trainable = [value for value in model.parameters() if value.requires_grad]
        made = getattr(torch.optim, optimiser)(trainable, **options)
        for step in range(1, steps + 1):
            chosen = torch.randperm(len(inputs))[:batch]
            rows, targets = inputs[chosen], labels[chosen]
            if flips:
                rows = torch.where(torch.rand(len(rows), 1) < 0.5, flipped(rows), rows)
            if augment is not None:
                rows, targets = augment(rows, nn.functional.one_hot(targets, widths[-1]).float())
            made.zero_grad()
            nn.functional.cross_entropy(model(rows), targets, label_smoothing=smoothing).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(trainable, clip)
            made.step()
            if step in keep:
                kept[step] = first_layer(model)
            if average is not None:
                mean = average * mean + (1 - average) * first_layer(model)
    return Trained(
        copy.deepcopy(model), start, first_layer(model), made, inputs, kept, None if average is None else mean
    )
