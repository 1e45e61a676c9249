"""Two-layer networks f(x) = W₂ φ(W₁ x) with k outputs, both layers trained.

W₁(0) has entries N(0, 1/d) and is kept as a seed, W₂(0) has entries N(0, 1/h) or is zero. What an attacker sees are the
trained features φ(W₁(T) x) and the change W₂(T) − s W₂(0) of the head (k × h, p_L = k h numbers), where s is what is
left of the start after weight decay; or features at (W₁(0) + W₁(T)) / 2, if the initial layer is known; or W₂(T)
itself, if W₂(0) is known up to its seed, or nothing but its distribution is.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from exhume import seeds
from exhume.activations import activation
from exhume.data.dataset import Dataset
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, Rows, hold, write_rows
from exhume.observation import Knowledge, Observation
from exhume.observing.of_head import observe_head
from exhume.start_rule import StartRule, normal_head
from exhume.validation import parse_fields
from exhume_papers.networks.two_layer import TwoLayer
from exhume_papers.victims.descent import ModuleIterates
from exhume_papers.victims.descent_loop import Surroundings, descend
from exhume_papers.victims.losses import loss_named
from exhume_papers.victims.moved_rows import MovedRows
from exhume_papers.victims.network_config import NetworkConfig
from exhume_papers.victims.norms import common_norm
from exhume_papers.victims.privacy import Spent, train_privately
from exhume_papers.victims.recipe import Descent
from exhume_papers.victims.span_iterates import SpanIterates
from exhume_papers.victims.targets import default_outputs, make_targets


class TwoLayerConfig(NetworkConfig):
    """The hidden layer: its number of units h, and φ. `knows_first_layer`: the attacker knows W₁(0) as well.

    `first_scale`: W₁(0) has so many times its usual size; a small one leaves hardly a trace in W₁(T), which then is a
    combination of the data alone.
    """

    kind: ClassVar[str] = "two-layer"

    width: int = Field(ge=1)
    activation: str = "relu"
    knows_first_layer: bool = False
    first_scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    @classmethod
    def parse(cls, **fields: object) -> "TwoLayerConfig":
        return parse_fields(cls, **fields)

    @model_validator(mode="after")
    def _layers_agree(self) -> "TwoLayerConfig":
        if self.freeze and (self.recipe.method not in ("gd", "sgd") or self.privacy is not None):
            raise UsageError(
                "expected gd or sgd without privacy for a two-layer network with a frozen first layer, found another "
                "recipe; 'exhume train rf' has the closed form"
            )
        if self.freeze and (self.knows_first_layer or self.features_at == "midpoint"):
            raise UsageError("expected a first layer that moves, to know it before training, found a frozen one")
        if self.first_scale != 1 and self.features_at == "midpoint":
            raise UsageError("expected a first layer of the usual size for features at the midpoint, found another")
        return self

    @property
    def phi(self) -> str:
        return self.activation

    @property
    def told_first_layer(self) -> bool:
        return self.knows_first_layer

    def head_weights(self, data: Dataset) -> int:
        return self.width * self.outputs_for(data)

    def rows(self, data: Dataset) -> int:
        return self.width


@dataclass(frozen=True, eq=False, repr=False)
class TwoLayerVictim:
    """A trained network: what an attacker sees of it, and what only its owner knows."""

    observation: Observation
    descent: Descent
    initial_rows: DrawnRows
    initial_head: Float[Tensor, "k h"]
    head: Float[Tensor, "k h"]
    moved: MovedRows | None
    """W₁(T) as (s, C); None if it is frozen, or the recipe leaves the span (Adam). It holds the training data."""
    spent: Spent | None = None
    """What a private training came to."""
    scale: float = 1.0
    """s, what weight decay left of W₂(0): the change of the head is counted from s W₂(0)."""

    @property
    def training_loss(self) -> float:
        return self.descent.loss

    @property
    def steps(self) -> int:
        return self.descent.steps

    @property
    def decayed_head(self) -> Float[Tensor, "k h"]:
        """s W₂(0), what is left of the start."""
        return self.scale * self.initial_head


def draw_first_layer(config: TwoLayerConfig, d: int) -> DrawnRows:
    return DrawnRows(seeds.derive(config.seed, "features"), config.width, d)


def draw_head(config: TwoLayerConfig, outputs: int, dtype: torch.dtype) -> Float[Tensor, "k h"]:
    if config.zero_head:
        return torch.zeros(outputs, config.width, dtype=dtype)
    return normal_head(outputs, config.width, config.seed).to(dtype)


def train_two_layer(
    config: TwoLayerConfig, data: Dataset, features_file: Path | None = None, around: Surroundings | None = None
) -> TwoLayerVictim:
    """Trains both layers. The rows of the observation's features (h × d) are written to `features_file` block by block,
    or held in memory without one."""
    outputs = default_outputs(data, config.loss) if config.outputs is None else config.outputs
    targets = make_targets(data, config.loss, outputs)
    rows, head = draw_first_layer(config, data.inputs.shape[1]), draw_head(config, outputs, data.inputs.dtype)
    around = around or Surroundings()
    # the recipe is kept apart in a checkpoint
    settings = {**around.settings, "two-layer": config.model_dump(mode="json", exclude={"recipe"})}
    around = replace(around, settings=settings)
    in_the_span = config.recipe.method != "adam" and config.privacy is None
    train = _train_in_the_span if in_the_span else _train_all_weights
    way = train(config, data, targets, rows, head, around)
    way.descent.require_end()
    halfway = config.features_at == "midpoint"
    shown = _midpoint(way, rows) if halfway else way.rows
    if shown.independent:  # frozen: a seed tells them
        kept: Rows = shown
    else:
        kept = hold(shown, dtype=data.inputs.dtype) if features_file is None else write_rows(shown, features_file)
    observation = observe_head(
        RidgeFeatures(kept, activation(config.activation), trained=not config.freeze),
        way.head,
        Knowledge(len(data.inputs), common_norm(data.inputs), config.initial, initial_body=halfway),
        data.image_shape,
        initial=head,
        scale=way.scale,
        start=StartRule("normal", outputs, config.width),
        initial_rows=_initial_rows(config, rows, data.inputs.dtype) if config.knows_first_layer else None,
    )
    return TwoLayerVictim(observation, way.descent, rows, head, way.head, way.moved, way.spent, way.scale)


def _initial_rows(config: TwoLayerConfig, rows: DrawnRows, dtype: torch.dtype) -> Rows:
    """W₁(0): a seed, as long as it has its usual size."""
    return rows if config.first_scale == 1 else HeldRows(config.first_scale * hold(rows, dtype=dtype).values)


@dataclass(frozen=True, eq=False, repr=False)
class TrainingResult:
    rows: Rows
    head: Float[Tensor, "k h"]
    descent: Descent
    scale: float = 1.0
    spent: Spent | None = None
    moved: MovedRows | None = None
    """The rows again, where they moved in the span of the data."""


def _train_in_the_span(
    config: TwoLayerConfig, data: Dataset, targets: Tensor, rows: DrawnRows, head: Tensor, around: Surroundings
) -> TrainingResult:
    loss, act = loss_named(config.loss), activation(config.activation)
    start, frozen = config.first_scale, config.freeze
    iterates = SpanIterates(rows, head, act, data.inputs, targets, loss, config.recipe, scale=start, frozen=frozen)
    descent = descend(iterates, config.recipe, _until(config), around)
    if frozen:
        return TrainingResult(
            _initial_rows(config, rows, data.inputs.dtype), iterates.head, descent, iterates.scale / start
        )
    moved = MovedRows(rows, iterates.scale, iterates.coefficients, data.inputs)
    return TrainingResult(moved, iterates.head, descent, iterates.scale / start, moved=moved)


def _train_all_weights(
    config: TwoLayerConfig, data: Dataset, targets: Tensor, rows: DrawnRows, head: Tensor, around: Surroundings
) -> TrainingResult:
    """Adam divides by the size of each weight's own gradient, privacy adds noise: both take W₁ out of the span."""
    first = HeldRows(config.first_scale * hold(rows, dtype=data.inputs.dtype).values)
    model = TwoLayer(first.values, head, activation(config.activation).value)
    if config.privacy is not None:
        done = train_privately(
            model, data.inputs, targets, config.loss, config.privacy, config.recipe, progress=around.progress
        )
        state = done.module.state
        trained = replace(first, values=state["first.weight"])
        return TrainingResult(trained, state["head.weight"], done.module.descent, spent=done.spent)
    iterates = ModuleIterates(model, data.inputs, targets, loss_named(config.loss), config.recipe)
    descent = descend(iterates, config.recipe, _until(config), around)
    trained = replace(first, values=model.first.weight.detach())
    return TrainingResult(trained, model.head.weight.detach(), descent)


def _midpoint(way: TrainingResult, initial: DrawnRows) -> Rows:
    if way.moved is not None:
        return way.moved.midpoint()
    trained = way.rows.held
    assert trained is not None, "recipes that leave the span hold all weights"
    return HeldRows((trained + hold(initial, dtype=trained.dtype).values) / 2)


def _until(config: TwoLayerConfig) -> float:
    return loss_named(config.loss).until if config.recipe.until is None else config.recipe.until
