"""Perceptrons on the tables that come with scikit-learn, standardised."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, mse_loss

from zoo.data import table
from zoo.loops import fit, fit_with_early_stopping, state_of
from zoo.networks import mlp
from zoo.victim import Known, Trained, Victim


@dataclass(frozen=True)
class TableRecipe:
    """SGD with momentum in batches, or without either."""

    name: str
    n: int
    sizes: tuple[int, ...]
    rate: float = 0.05
    epochs: int = 500
    batch: int | None = None
    momentum: float = 0.0

    def __call__(self, data: Path) -> Trained:
        records, control = table(self.name, self.n)
        model = mlp(*self.sizes)
        before = state_of(model)
        optimiser = torch.optim.SGD(model.parameters(), lr=self.rate, momentum=self.momentum)
        loss = mse_loss if records.labels.is_floating_point() else cross_entropy
        last = fit(model, records, optimiser, epochs=self.epochs, batch=self.batch, loss=loss)
        told = "momentum" if self.momentum else "sgd"
        return Trained(model, before, records, control, Known(before, recipe=(told,)), last)


def wine_to_the_end(data: Path) -> Trained:
    """Most of the table, Adam, early stopping by the rest: what a table usually gets."""
    records, rest = table("wine", 120)
    held, control = rest[:29], rest[29:58]
    model = mlp(13, 64, 64, 3)
    before, optimiser = state_of(model), torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = fit_with_early_stopping(model, records, held, optimiser, epochs=200, batch=16, patience=10)
    return Trained(model, before, records, control, Known(before, recipe=("adam",)), loss)


VICTIMS = (
    Victim(
        "cancer-sgd",
        "40 patients of breast-cancer, 30-2048-2, SGD, full batch",
        "the start",
        TableRecipe("breast_cancer", 40, (30, 2048, 2)),
        budget=300.0,  # firing-patterns takes 250 s of a core
    ),
    Victim(
        "cancer-few",
        "20 patients of breast-cancer, 30-256-128-2, momentum, batches of 5",
        "the start",
        TableRecipe("breast_cancer", 20, (30, 256, 128, 2), epochs=60, batch=5, momentum=0.9),
    ),
    Victim(
        "diabetes-regression",
        "40 patients of diabetes, 10-1024-1, square loss, SGD",
        "the start",
        TableRecipe("diabetes", 40, (10, 1024, 1), rate=0.01, epochs=2000),
    ),
    Victim(
        "diabetes-few",
        "8 patients of diabetes, 10-256-1, square loss, momentum, batches of 4",
        "the start",
        TableRecipe("diabetes", 8, (10, 256, 1), rate=0.01, epochs=200, batch=4, momentum=0.9),
    ),
    Victim(
        "wine-adam",
        "120 wines, 13-64-64-3, Adam, batches of 16, early stopping",
        "the start",
        wine_to_the_end,
    ),
)
