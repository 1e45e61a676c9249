"""What a victim is: a recipe, what it leaves behind, and what the attacker knows of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

State = Mapping[str, Tensor]
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
"""Where the real CIFAR-10 is looked for, as in the tests."""


@dataclass(frozen=True, eq=False)
class Known:
    """What the audit is given beside the trained weights. `start` may hold some of the layers only."""

    start: State | None = None
    optimiser: Mapping[str, Any] | None = None
    average: State | None = None
    recipe: tuple[str, ...] = ()
    training: Mapping[str, Any] | None = None
    """The recipe in numbers, as in a file for `--recipe-file`; whoever knows it knows n."""


@dataclass(frozen=True, eq=False)
class Records:
    """Inputs as the model sees them, rows or images, and their labels or targets."""

    inputs: Tensor
    labels: Tensor

    def __getitem__(self, chosen: slice) -> "Records":
        return Records(self.inputs[chosen], self.labels[chosen])

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, eq=False)
class Trained:
    """A model after its training, with the truth. `also` are inputs that training saw beside the records."""

    model: nn.Module
    before: State
    records: Records
    control: Records
    known: Known
    loss: float
    also: Tensor | None = None


Making = Callable[[Path], Trained]
"""Trains by torch's global stream, which is seeded before; the folder is that of the real CIFAR-10."""


@dataclass(frozen=True)
class Victim:
    name: str
    what: str
    """The model, the data and the recipe, in one line."""
    knows: str
    """What the attacker knows beside the trained weights and the code of the model, in words."""
    make: Making = field(repr=False)
    budget: float | None = None
    """Seconds for the attacks of an audit, where those that all victims have are too few for an attack on this one."""

    def train(self, seed: int = 0, data: Path = SHARED) -> Trained:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            trained = self.make(data)
        trained.model.eval()
        return trained
