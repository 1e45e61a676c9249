"""What all trained networks are told: how to train, and what an attacker will know of the start."""

from typing import Any, Literal

from pydantic import Field, model_validator

from exhume.data.dataset import Dataset
from exhume.errors import UsageError
from exhume_papers.victims.losses import LossName, loss_named
from exhume_papers.victims.privacy import Privacy
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.targets import default_outputs
from exhume_papers.victims.victim_config import VictimConfig

ToldInitial = Literal["known", "seed", "distribution", "zero"]
FeaturesAt = Literal["trained", "midpoint"]


class NetworkConfig(VictimConfig):
    """Everything that is needed to train the same victim again, besides its data and the network's own sizes.

    `outputs` None: by the classes. `initial`: what the attacker knows of the head before training, as in Knowledge; a
    head that starts at zero is known to do so. `features_at`: "midpoint" gives the attacker the initial layers before
    the head as well, and features halfway between both ends of training. `freeze`: only the head is trained.
    `privacy`: DP-SGD takes its own number of steps instead of the recipe's.
    """

    outputs: int | None = Field(default=None, ge=1)
    loss: LossName = "square"
    zero_head: bool = False
    initial: ToldInitial = "known"
    features_at: FeaturesAt = "trained"
    freeze: bool = False
    recipe: DescentRecipe = DescentRecipe()
    privacy: Privacy | None = None
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="before")
    @classmethod
    def _zero_is_known(cls, fields: Any) -> Any:
        """A start at zero and the knowledge of it come together, whichever of the two is asked for."""
        if not isinstance(fields, dict):
            return fields
        if fields.get("initial") == "zero" and "zero_head" not in fields:
            return fields | {"zero_head": True}
        if fields.get("zero_head") is True and fields.get("initial") in (None, "known"):
            return fields | {"initial": "zero"}
        return fields

    @model_validator(mode="after")
    def _start_agrees(self) -> "NetworkConfig":
        if self.zero_head != (self.initial == "zero"):
            start = "at zero" if self.zero_head else "at random"
            raise UsageError(
                f"expected an initial head of 'zero' with a start at zero and only then, found {self.initial!r} with a "
                f"start {start}"
            )
        if self.features_at == "midpoint" and self.initial in ("distribution", "seed"):
            known = "distribution" if self.initial == "distribution" else "rule"
            raise UsageError(f"expected a known start for features at the midpoint, found only its {known}")
        if self.recipe.method == "closed-form" and not (self.freeze and self.loss == "square" and not self.privacy):
            raise UsageError(
                "expected a frozen body and the square loss without privacy for the closed form, found another victim"
            )
        if self.privacy is not None:
            self.privacy.check(self.recipe)
        return self

    @property
    def told_outputs(self) -> int | None:
        return self.outputs

    def outputs_for(self, data: Dataset) -> int:
        return default_outputs(data, self.loss) if self.outputs is None else self.outputs

    def head_weights(self, data: Dataset) -> int:
        return data.inputs.numel()  # unknown before the network is built

    @property
    def halfway(self) -> bool:
        return self.features_at == "midpoint"

    def way(self) -> tuple[int, float] | None:
        if self.privacy is not None:
            return super().way()
        until = self.recipe.until
        return self.recipe.steps, loss_named(self.loss).until if until is None else until
