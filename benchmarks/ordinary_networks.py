"""Ordinary networks to attack: plain PyTorch, default layers with bias, raw data, torch's own optimisers.

Used by `silent_units.py` and `silent_certificate.py`. Nothing here comes from exhume's own victims.
"""

import copy
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ACTIVATIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "leaky": nn.LeakyReLU, "prelu": nn.PReLU, "gelu": nn.GELU}
LEAKS = {"relu": 0.0, "relu6": 0.0, "leaky": 0.01, "prelu": 0.25, "gelu": 0.2}


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
    model: nn.Sequential
    start: Tensor
    end: Tensor
    optimiser: Any
    inputs: Tensor


def first_layer(model: nn.Sequential) -> Tensor:
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    weight = layer.weight.detach().clone()
    return weight if layer.bias is None else torch.cat([weight, layer.bias.detach()[:, None]], dim=1)


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
    flips: bool = False,
    **options: Any,
) -> Trained:
    """Mini-batches at random, cross-entropy; SGD with momentum 0.9 at 0.01 unless options say otherwise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = (inputs.shape[1], *widths)
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Linear(a, b), ACTIVATIONS[activation]()]
        model = nn.Sequential(*layers[:-1])
        start = first_layer(model)
        options = options or ({"lr": 0.01, "momentum": 0.9} if optimiser == "SGD" else {"lr": 1e-3})
        made = getattr(torch.optim, optimiser)(model.parameters(), **options)
        for _ in range(steps):
            chosen = torch.randperm(len(inputs))[:batch]
            rows = inputs[chosen]
            if flips:
                rows = torch.where(torch.rand(len(rows), 1) < 0.5, flipped(rows), rows)
            made.zero_grad()
            nn.functional.cross_entropy(model(rows), labels[chosen]).backward()
            made.step()
    return Trained(copy.deepcopy(model), start, first_layer(model), made, inputs)
