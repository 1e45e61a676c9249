"""Multilayer perceptrons on digits of 8 x 8 raw pixels."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zoo.data import digits
from zoo.loops import Average, fit, fit_with_early_stopping, state_of
from zoo.networks import mlp
from zoo.victim import Known, State, Trained, Victim

START = "the start"
NOTHING = "nothing else"


@dataclass(frozen=True)
class Recipe:
    """A perceptron and how it is trained. `told` is what the owner tells the audit of the recipe."""

    sizes: tuple[int, ...] = (64, 2048, 10)
    n: int = 20
    optimiser: type[torch.optim.Optimizer] = torch.optim.SGD
    rate: float = 0.1
    epochs: int = 500
    batch: int | None = None
    told: tuple[str, ...] = ("sgd",)
    activation: type[nn.Module] = nn.ReLU
    dropout: float = 0.0
    momentum: float | None = None
    weight_decay: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        given = {"lr": self.rate, "momentum": self.momentum, "weight_decay": self.weight_decay}
        return {name: value for name, value in given.items() if value is not None}

    def optimise(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.optimiser(model.parameters(), **self.options)

    def __call__(self, data: Path) -> Trained:
        """The attacker knows the whole start."""
        trained, _ = self.with_optimiser()
        return trained

    def with_optimiser(self) -> tuple[Trained, torch.optim.Optimizer]:
        records, control = digits(self.n)
        model = mlp(*self.sizes, activation=self.activation, dropout=self.dropout)
        before, optimiser = state_of(model), self.optimise(model)
        loss = fit(model, records, optimiser, epochs=self.epochs, batch=self.batch)
        return Trained(model, before, records, control, Known(before, recipe=self.told), loss), optimiser


def head_of(before: State) -> State:
    """The tensors of the last layer alone."""
    last = list(before)[-1].rpartition(".")[0]
    return {name: value for name, value in before.items() if name.startswith(f"{last}.")}


def in_numbers(data: Path) -> Trained:
    """Adam, and an attacker who has the training script: its numbers, n and the order of the labels."""
    trained = ADAM(data)
    labels = trained.records.labels.tolist()
    training = {"optimiser": "adam", "rate": ADAM.rate, "steps": ADAM.epochs, "labels": labels}
    return replace(trained, known=replace(trained.known, training=training))


PLAIN = Recipe()
ADAM = Recipe(sizes=(64, 512, 10), optimiser=torch.optim.Adam, rate=1e-3, epochs=50, told=("adam",))


def head_start_only(data: Path) -> Trained:
    trained = PLAIN(data)
    return replace(trained, known=replace(trained.known, start=head_of(trained.before)))


def no_start(data: Path) -> Trained:
    trained = PLAIN(data)
    return replace(trained, known=Known(recipe=("sgd",)))


def optimiser_beside(data: Path) -> Trained:
    """A checkpoint that is resumed from: weights and Adam's state, no start."""
    recipe = replace(ADAM, sizes=(64, 1024, 10), epochs=20, batch=10)
    trained, optimiser = recipe.with_optimiser()
    return replace(trained, known=Known(optimiser=optimiser.state_dict(), recipe=("adam",)))


def average_beside(data: Path) -> Trained:
    """Weights and their moving average in one checkpoint, no start."""
    records, control = digits(20)
    model = mlp(64, 1024, 10)
    before, average = state_of(model), Average(dict(state_of(model)), decay=0.95)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss = fit(model, records, optimiser, epochs=30, batch=10, average=average)
    known = Known(average=average.state, recipe=("momentum",))
    return Trained(model, before, records, control, known, loss)


def two_checkpoints(data: Path) -> Trained:
    """The attacker has the weights after a third of the epochs instead of the start."""
    records, control = digits(20)
    model = mlp(64, 1024, 512, 10)
    before, optimiser = state_of(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    fit(model, records, optimiser, epochs=30, batch=10)
    middle = state_of(model)
    loss = fit(model, records, optimiser, epochs=60, batch=10)
    return Trained(model, before, records, control, Known(middle, recipe=("momentum",)), loss)


def early_stopping(data: Path) -> Trained:
    """Fifty digits, fifty others to stop by."""
    records, rest = digits(50, control=100)
    held, control = rest[:50], rest[50:]
    model = mlp(64, 1024, 10)
    before, optimiser = state_of(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = fit_with_early_stopping(model, records, held, optimiser, epochs=200, batch=10, patience=10)
    return Trained(model, before, records, control, Known(before, recipe=("momentum",)), loss)


def fine_tuned(data: Path) -> Trained:
    """Trained on 1,400 digits by Adam and published; then on eight more by SGD, and published again."""
    many, rest = digits(1400, control=397)
    records, control = rest[:8], rest[8:16]
    model = mlp(64, 512, 10)
    fit(model, many, torch.optim.Adam(model.parameters(), lr=1e-3), epochs=5, batch=64)
    before = state_of(model)
    loss = fit(model, records, torch.optim.SGD(model.parameters(), lr=0.05), epochs=100)
    return Trained(model, before, records, control, Known(before, recipe=("sgd",)), loss)


def quickstart(data: Path) -> Trained:
    """The two hidden layers of 512 of PyTorch's quickstart, on a thousand digits."""
    records, control = digits(1000, control=797)
    model = mlp(64, 512, 512, 10)
    before, optimiser = state_of(model), torch.optim.SGD(model.parameters(), lr=0.05)
    loss = fit(model, records, optimiser, epochs=20, batch=64)
    return Trained(model, before, records, control, Known(before, recipe=("sgd",)), loss)


VICTIMS = (
    Victim("digits-sgd", "20 digits, 64-2048-10, SGD, full batch", START, PLAIN),
    Victim(
        "digits-momentum",
        "20 digits, 64-2048-10, SGD with momentum, batches of 8",
        START,
        replace(PLAIN, rate=0.05, momentum=0.9, batch=8, epochs=150, told=("momentum",)),
    ),
    Victim(
        "digits-head-start",
        "20 digits, 64-2048-10, SGD, full batch",
        "the start of the head only",
        head_start_only,
        budget=180.0,
    ),
    Victim("digits-no-start", "20 digits, 64-2048-10, SGD, full batch", NOTHING, no_start),
    Victim("digits-three-layers", "20 digits, 64-512-2048-10, SGD", START, replace(PLAIN, sizes=(64, 512, 2048, 10))),
    Victim(
        "digits-four-layers",
        "20 digits, 64-512-256-128-10, momentum, batches of 10",
        START,
        replace(PLAIN, sizes=(64, 512, 256, 128, 10), rate=0.05, momentum=0.9, batch=10, epochs=60, told=("momentum",)),
    ),
    Victim(
        "digits-gelu",
        "20 digits, 64-2048-10 with GELU, SGD",
        START,
        replace(PLAIN, activation=nn.GELU),
    ),
    Victim(
        "digits-adam",
        "20 digits, 64-512-10, Adam, full batch, 50 steps",
        "the start, the recipe in numbers, n and the labels",
        in_numbers,
        budget=600.0,  # replay takes 500 s of a core for as much as it gets
    ),
    Victim(
        "digits-adam-state", "20 digits, 64-1024-10, Adam, batches of 10", "the optimiser's state", optimiser_beside
    ),
    Victim(
        "digits-adam-l2",
        "20 digits, 64-512-10, Adam with L2 of 1e-3, 8,000 steps",
        START,
        replace(ADAM, weight_decay=1e-3, epochs=8000, told=("adam", "weight-decay")),
    ),
    Victim(
        "digits-adamw",
        "50 digits, 64-512-512-10, AdamW, batches of 10",
        START,
        replace(ADAM, sizes=(64, 512, 512, 10), n=50, optimiser=torch.optim.AdamW, batch=10, epochs=40),
    ),
    Victim(
        "digits-weight-decay",
        "20 digits, 64-2048-10, momentum, weight decay 5e-4, batches of 10",
        START,
        replace(
            PLAIN, rate=0.05, momentum=0.9, weight_decay=5e-4, batch=10, epochs=200, told=("momentum", "weight-decay")
        ),
    ),
    Victim(
        "digits-dropout",
        "20 digits, 64-1024-512-10, dropout 0.5, momentum, batches of 10",
        START,
        replace(
            PLAIN,
            sizes=(64, 1024, 512, 10),
            dropout=0.5,
            rate=0.05,
            momentum=0.9,
            batch=10,
            epochs=60,
            told=("momentum", "dropout"),
        ),
    ),
    Victim("digits-average", "20 digits, 64-1024-10, momentum, batches of 10", "the moving average", average_beside),
    Victim(
        "digits-checkpoints",
        "20 digits, 64-1024-512-10, momentum, batches of 10",
        "an earlier checkpoint",
        two_checkpoints,
    ),
    Victim(
        "digits-early-stopping",
        "50 digits, 64-1024-10, momentum, batches of 10, early stopping",
        START,
        early_stopping,
    ),
    Victim(
        "digits-fine-tuned",
        "8 digits, 64-512-10 trained before on 1,400 others, all layers by SGD",
        "the weights before fine-tuning",
        fine_tuned,
    ),
    Victim("digits-quickstart", "1,000 digits, 64-512-512-10, SGD, batches of 64, 20 epochs", START, quickstart),
)
