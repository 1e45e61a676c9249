"""The training loop that every victim shares, as tutorials write it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.optim import Optimizer

from zoo.victim import Records, State

Loss = Callable[[Tensor, Tensor], Tensor]
Augmentation = Callable[[Tensor], Tensor]
CROP = 4  # pixels of padding for random crops, as everywhere for CIFAR-10


def state_of(model: nn.Module) -> State:
    return copy.deepcopy(model.state_dict())


def fit(
    model: nn.Module,
    records: Records,
    optimiser: Optimizer,
    *,
    epochs: int,
    batch: int | None = None,
    loss: Loss = cross_entropy,
    augment: Augmentation | None = None,
    average: "Average | None" = None,
) -> float:
    """Epochs over shuffled batches (None: all records at once); the mean loss of the last epoch."""
    model.train()
    last = 0.0
    for _ in range(epochs):
        order = torch.randperm(len(records)) if batch else torch.arange(len(records))
        last = 0.0
        for chosen in order.split(batch or len(records)):
            inputs = records.inputs[chosen]
            value = loss(model(inputs if augment is None else augment(inputs)), records.labels[chosen])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            last += float(value.detach()) * len(chosen) / len(records)
            if average is not None:
                average.update(model)
    return last


def fit_with_early_stopping(
    model: nn.Module, records: Records, held: Records, optimiser: Optimizer, *, epochs: int, batch: int, patience: int
) -> float:
    """Ends when the loss on `held` has not improved for `patience` epochs, and goes back to the best weights."""
    best, kept, since, last = float("inf"), state_of(model), 0, 0.0
    for _ in range(epochs):
        last = fit(model, records, optimiser, epochs=1, batch=batch)
        model.eval()
        with torch.no_grad():
            value = float(cross_entropy(model(held.inputs), held.labels))
        since += 1
        if value < best:
            best, kept, since = value, state_of(model), 0
        if since >= patience:
            break
    model.load_state_dict(kept)
    return last


@dataclass
class Average:
    """A moving average of all weights, as training scripts keep one for evaluation."""

    state: dict[str, Tensor]
    decay: float = 0.99

    def update(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            self.state[name].lerp_(value.detach(), 1 - self.decay)


def flips(images: Tensor) -> Tensor:
    """Each image mirrored or not, by chance."""
    return torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(-1), images)


def crops_and_flips(images: Tensor) -> Tensor:
    """Each image moved by up to four pixels and mirrored or not: the usual augmentation for CIFAR-10."""
    side = images.shape[-1]
    wide = pad(images, (CROP,) * 4)
    places = torch.randint(0, 2 * CROP + 1, (len(images), 2)).tolist()
    cut = [image[:, a : a + side, b : b + side] for image, (a, b) in zip(wide, places, strict=True)]
    return flips(torch.stack(cut))
