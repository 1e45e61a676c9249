"""What every victim says of itself, before it is trained and whatever it is a model of."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

from exhume.data.dataset import Dataset

if TYPE_CHECKING:
    from exhume_papers.victims.privacy import Privacy


class VictimConfig(BaseModel, ABC):
    """Everything that is needed to train the same victim again, besides its data."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str]
    """The name of `exhume train KIND`."""
    is_network: ClassVar[bool] = False
    """Whether its features are those of a network, and not φ(Vx + b)."""

    if TYPE_CHECKING:  # fields of every victim, in the place that each has them
        seed: int
        privacy: Privacy | None

    @property
    def name(self) -> str:
        return self.kind

    @property
    def phi(self) -> str | None:
        """The name of its activation; None where nobody can tell."""
        return None

    @property
    def ridge_penalty(self) -> float:
        return 0.0

    @property
    def own_code(self) -> str | None:
        """The code of the user's own that builds it."""
        return None

    @property
    def halfway(self) -> bool:
        """Whether an attacker is shown features halfway between both ends of training."""
        return False

    @property
    def told_first_layer(self) -> bool:
        """Whether an attacker knows the first layer before training as well."""
        return False

    @property
    def told_outputs(self) -> int | None:
        """The number of outputs; None where the data decide."""
        return 1

    @abstractmethod
    def head_weights(self, data: Dataset) -> int:
        """How many weights the head will have, about."""

    def rows(self, data: Dataset) -> int:
        """How many rows of V an attack will hold."""
        return self.head_weights(data)

    def way(self) -> tuple[int, float] | None:
        """At most how many steps a training takes, and the loss that ends it earlier; None: it is fitted at once."""
        return None if self.privacy is None else (self.privacy.steps, 0.0)
