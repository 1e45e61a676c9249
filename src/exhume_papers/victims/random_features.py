"""The random-features model f(x) = φ(Vx + b)·θ, V_kj ~ N(0, 1/d), of which only θ is trained."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from exhume import seeds
from exhume.activations import activation
from exhume.data.dataset import Dataset
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, Rows
from exhume.observation import Knowledge, Observation
from exhume_papers.machine import check_fits
from exhume_papers.victims.losses import LossName
from exhume_papers.victims.norms import common_norm
from exhume_papers.victims.privacy import Privacy, Spent, train_privately
from exhume_papers.victims.private import Progress
from exhume_papers.victims.recipe import Descent, DescentRecipe
from exhume_papers.victims.targets import make_targets
from exhume_papers.victims.training import DualFit, fit_logistic, fit_min_norm, fit_ridge
from exhume_papers.victims.victim_config import VictimConfig

KEPT_BYTES = 3 * 2**29  # features of the training data that may stay in memory between the two sweeps


class RandomFeaturesConfig(VictimConfig):
    kind: ClassVar[str] = "rf"

    params: int = Field(ge=1)
    activation: str = "relu"
    bias: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # standard deviation of b; 0: none
    fit: Literal["min-norm", "ridge", "logistic"] = "min-norm"
    ridge: float | None = None
    steps: int = Field(default=1_000_000, ge=1)
    step_size: float | None = None
    features: Literal["seed", "file"] = "seed"
    privacy: Privacy | None = None
    seed: int = 0

    @model_validator(mode="after")
    def _fields_agree(self) -> "RandomFeaturesConfig":
        if self.ridge is not None and self.fit != "ridge":
            raise UsageError(f"expected a ridge penalty with the fit 'ridge' only, found it with {self.fit!r}")
        if self.privacy is not None and self.fit == "ridge":
            raise UsageError("expected private training without a ridge penalty, found the fit 'ridge'")
        return self

    @property
    def phi(self) -> str:
        return self.activation

    @property
    def ridge_penalty(self) -> float:
        return self.ridge or 0.0

    def head_weights(self, data: Dataset) -> int:
        return self.params


@dataclass(frozen=True, eq=False, repr=False)
class Victim:
    """A trained model: what an attacker sees of it, and what only its owner knows."""

    observation: Observation
    coefficients: Float[Tensor, " n"]
    training_loss: float
    steps: int


def draw_rows(config: RandomFeaturesConfig, d: int) -> DrawnRows:
    return DrawnRows(seeds.derive(config.seed, "features"), config.params, d)


def train_random_features(config: RandomFeaturesConfig, data: Dataset, rows: Rows) -> Victim:
    """Fits θ on the data, in row blocks: a first sweep over the features for K = Φ Φᵀ, a second for Φᵀα.

    Where the n × p features are small enough they are kept from the first sweep, and V is drawn once.
    """
    check_fits(4 * config.params, "weights")
    features = RidgeFeatures(rows, activation(config.activation), _draw_bias(config, data.inputs.dtype))
    inputs = data.inputs
    gram = torch.zeros(len(inputs), len(inputs), dtype=torch.float64)
    keep = len(inputs) * features.p * inputs.element_size() <= KEPT_BYTES
    kept: list[tuple[slice, Tensor]] = []
    for block, values in features.feature_blocks(inputs):
        gram += values.double() @ values.double().T
        if keep:
            kept.append((block, values))
    if not torch.isfinite(gram).all():
        raise ExhumeError("expected finite features, found overflow; check the features file and the scale of the data")
    fitted = _fit(config, gram, data.labels)
    weights = torch.empty(1, features.p, dtype=inputs.dtype)
    for block, values in kept or features.feature_blocks(inputs):
        weights[0, block] = (fitted.coefficients @ values.double()).to(inputs.dtype)
    knowledge = Knowledge(samples=len(inputs), norm=common_norm(inputs))
    observation = Observation(features, weights, knowledge, data.image_shape)
    return Victim(observation, fitted.coefficients, fitted.training_loss, fitted.steps)


@dataclass(frozen=True, eq=False)
class PrivateVictim:
    """θ trained by DP-SGD from zero: noise takes it out of the span of the features."""

    observation: Observation
    descent: Descent
    spent: Spent


def train_private_random_features(
    config: RandomFeaturesConfig, data: Dataset, rows: Rows, progress: Progress | None = None
) -> PrivateVictim:
    """Trains θ with differential privacy, on the square loss or, for the fit "logistic", the logistic one.

    Keeps the n × p features and as many gradients in memory.
    """
    assert config.privacy is not None
    features = RidgeFeatures(rows, activation(config.activation), _draw_bias(config, data.inputs.dtype))
    loss: LossName = "logistic" if config.fit == "logistic" else "square"
    head = nn.Linear(features.p, 1, bias=False, dtype=data.inputs.dtype, device="meta").to_empty(device="cpu")
    nn.init.zeros_(head.weight)
    recipe = DescentRecipe(step_size=config.step_size, seed=config.seed)
    targets = make_targets(data, loss, 1)
    done = train_privately(head, features(data.inputs), targets, loss, config.privacy, recipe, progress=progress)
    knowledge = Knowledge(samples=len(data.inputs), norm=common_norm(data.inputs))
    observation = Observation(features, done.module.state["weight"], knowledge, data.image_shape)
    return PrivateVictim(observation, done.module.descent, done.spent)


def _fit(config: RandomFeaturesConfig, gram: Float[Tensor, "n n"], labels: Float[Tensor, " n"]) -> DualFit:
    if config.fit == "ridge":
        if config.ridge is None:
            raise UsageError("expected a penalty for the ridge fit, found none; give --ridge LAMBDA")
        return fit_ridge(gram, labels, config.ridge)
    if config.fit == "logistic":
        return fit_logistic(gram, labels, config.steps, config.step_size)
    return fit_min_norm(gram, labels)


def _draw_bias(config: RandomFeaturesConfig, dtype: torch.dtype) -> Float[Tensor, " p"] | None:
    if config.bias == 0:
        return None
    stream = seeds.generator(config.seed, "bias")
    return (config.bias * torch.randn(config.params, generator=stream, dtype=torch.float64)).to(dtype)
