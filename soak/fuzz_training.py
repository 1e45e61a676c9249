"""The smallest training that there is, to leave a checkpoint and to go on from one that was changed."""

from pathlib import Path

import torch
from torch import Tensor

from exhume.files import read_tensors, write_tensors
from exhume_papers.victims.descent_loop import KIND, Surroundings, descend
from exhume_papers.victims.recipe import DescentRecipe

RECIPE = DescentRecipe(steps=6)


class Bowl:
    """||w||² / 2 in three dimensions."""

    samples = 2

    def __init__(self) -> None:
        self.weights = torch.ones(3)

    def loss(self) -> float:
        return float(self.weights.square().sum() / 2)

    def differentiate(self, batch: Tensor | None) -> float:
        return self.loss()

    def move(self, step_size: float) -> None:
        self.weights = self.weights * (1 - step_size / 2)

    def curvature(self, batch: Tensor | None) -> float:
        return 1.0

    def state(self) -> dict[str, Tensor]:
        return {"weights": self.weights}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.weights.copy_(state["weights"])


def stop_half_way(checkpoint: Path, first_form: Path) -> None:
    """Leaves a checkpoint, and the same without a digest, as the first form had none: changes of that get further."""
    descend(Bowl(), RECIPE, 0.0, Surroundings(checkpoint=checkpoint, stop=lambda: True))
    kept = read_tensors(checkpoint, KIND)
    meta = {name: value for name, value in kept.meta.items() if name not in ("digest", "kind", "schema")}
    write_tensors(first_form, KIND, kept.tensors, meta)


def go_on(checkpoint: Path) -> None:
    descend(Bowl(), RECIPE, 0.0, Surroundings(checkpoint=checkpoint, keep_checkpoint=True))
