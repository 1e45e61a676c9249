"""How a network was trained, as its owner declares it: enough to train again from the same start.

A recipe is a frozen model that reads and writes JSON, and loads without torch:

    {"optimiser": "adam", "rate": 0.001, "steps": 50, "labels": [3, 1, 4]}

The names and defaults are those of torch.optim. Batches are those of a seeded shuffle: one generator is seeded with
`batch_seed`, and each epoch takes the batches of the next torch.randperm(n) from it, the last one smaller if n is no
multiple. Without `batch_size` every step sees all samples.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exhume.errors import ExhumeError
from exhume.regular_file import regular
from exhume.strict_json import parse_json

Optimiser = Literal["sgd", "adam", "adamw"]
Loss = Literal["cross-entropy", "square"]
Share = Annotated[float, Field(ge=0, lt=1)]


class Recipe(BaseModel):
    """`labels`: the classes of the samples in their order, where they are known. `loss`: that of torch, the mean."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    optimiser: Optimiser
    rate: Annotated[float, Field(gt=0)]
    steps: Annotated[int, Field(ge=1)]
    momentum: Share = 0.0
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch_size: Annotated[int, Field(ge=1)] | None = None
    batch_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    loss: Loss = "cross-entropy"
    labels: tuple[Annotated[int, Field(ge=0)], ...] | None = None

    @property
    def described(self) -> str:
        """In words, for a page."""
        batches = "all samples per step" if self.batch_size is None else f"batches of {self.batch_size}"
        return f"{self.optimiser}, rate {self.rate:g}, {self.steps:,} steps, {batches}, {self.loss}"


def read_recipe(path: Path) -> Recipe:
    """The recipe in a JSON file."""
    try:
        return Recipe.model_validate(parse_json(regular(path).read_bytes()))
    except OSError as problem:
        raise ExhumeError(f"expected a recipe in {path}, found: {problem.strerror or problem}") from problem
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ExhumeError(f"expected a recipe in {path}, found {place}: {first['msg']}") from problem
    except ValueError as problem:
        raise ExhumeError(f"expected a recipe as JSON in {path}, found {problem}") from problem
