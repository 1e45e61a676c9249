"""Training with differential privacy: DP-SGD of a linear head on fixed features, with the square loss.

In each step every sample is drawn with probability q = batch / n (Poisson sampling), its gradient is clipped to the
norm C, and w ← w − (η / qn) (Σ_i clip(g_i) + σ C z) with z ~ N(0, I). The whole way satisfies (ε, δ)-differential
privacy with the ε that Opacus' Rényi accountant reports. What is chosen by looking at the data (the step size where
none is given, the number of steps) is not part of it, as usual, and so belongs to other data in earnest.

The gradient of a sample is e_i φ(x_i)ᵀ with e_i = 2 (f_i − y_i) / k, so its norm is ||e_i|| ||φ(x_i)|| and n × k × p
gradients need not be kept. Gradients are combinations of features; the noise is not. It has p dimensions, of which the
training outputs see n: a head can still fit its data and yet hide it from an attack.
"""

import math
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from exhume import seeds
from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.observation import Knowledge, Observation
from exhume.validation import parse_fields

NORM_OFFSET = 1e-6  # keeps a gradient of zero from a division by zero, as Opacus does


class PrivateRecipe(BaseModel):
    """DP-SGD. `batch` is the expected one (None: all samples in every step), `step_size` None is 1 / curvature."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clip: float = Field(gt=0)
    noise: float = Field(ge=0)  # σ, in units of the clipping norm
    steps: int = Field(ge=1)
    batch: int | None = Field(default=None, ge=1)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    step_size: float | None = Field(default=None, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    seed: int = Field(default=0, ge=0, lt=2**63)

    @classmethod
    def parse(cls, **fields: object) -> "PrivateRecipe":
        return parse_fields(cls, **fields)

    def rate(self, samples: int) -> float:
        """q, the probability of a sample to be in a batch."""
        if self.batch is not None and self.batch > samples:
            raise UsageError(f"expected a batch of at most the {samples} samples, found {self.batch}")
        return 1.0 if self.batch is None else self.batch / samples


@dataclass(frozen=True, eq=False)
class PrivateHead:
    """A head on fixed features: what an attacker sees of it, and what its privacy has come to."""

    observation: Observation
    training_loss: float
    step_size: float
    epsilon: float
    delta: float


def train_private_head(
    features: RidgeFeatures | ModuleFeatures,
    inputs: Float[Tensor, "n d"],
    targets: Float[Tensor, "n k"],
    recipe: PrivateRecipe,
    knowledge: Knowledge,
    image_shape: tuple[int, int, int] | None = None,
) -> PrivateHead:
    """Trains a linear head on fixed features, from zero."""
    require_opacus()
    values, rate = features(inputs), recipe.rate(len(inputs))
    step_size = recipe.step_size or _measured_step(values, targets.shape[1], recipe)
    weights = _descend(values, targets, recipe, step_size)
    loss = float((values @ weights.T - targets).double().square().mean())
    if not math.isfinite(loss):
        raise ExhumeError(f"expected a finite loss, found {loss} at step size {step_size:g}; give a smaller one")
    observation = Observation(features, weights, knowledge, image_shape)
    return PrivateHead(observation, loss, step_size, epsilon(recipe, rate), recipe.delta)


def epsilon(recipe: PrivateRecipe, rate: float) -> float:
    """The ε of the whole training, for the recipe's δ; infinite without noise."""
    require_opacus()
    if recipe.noise == 0:
        return math.inf
    accountant = import_module("opacus.accountants").RDPAccountant()
    accountant.history = [(recipe.noise, rate, recipe.steps)]
    with warnings.catch_warnings():  # at the edge of its Rényi orders the bound is loose, and still a bound
        warnings.simplefilter("ignore", UserWarning)
        return float(accountant.get_epsilon(recipe.delta))


def _descend(
    values: Float[Tensor, "n p"], targets: Float[Tensor, "n k"], recipe: PrivateRecipe, step_size: float
) -> Float[Tensor, "k p"]:
    rate, stream = recipe.rate(len(values)), seeds.generator(recipe.seed, "noise", values.device)
    weights = values.new_zeros(targets.shape[1], values.shape[1])
    speed, lengths = torch.zeros_like(weights), values.norm(dim=1)
    for _ in range(recipe.steps):
        drawn = torch.rand(len(values), generator=stream, device=stream.device) < rate
        errors = (values[drawn] @ weights.T - targets[drawn]) * (2 / targets.shape[1])
        factors = (recipe.clip / (errors.norm(dim=1) * lengths[drawn] + NORM_OFFSET)).clamp(max=1)
        gradient = (errors * factors[:, None]).T @ values[drawn]
        if recipe.noise:
            size = recipe.noise * recipe.clip
            gradient += torch.normal(0, size, weights.shape, generator=stream, device=stream.device).to(weights)
        speed = recipe.momentum * speed + gradient / (rate * len(values))
        weights = weights - step_size * speed
    return weights


def _measured_step(values: Float[Tensor, "n p"], outputs: int, recipe: PrivateRecipe) -> float:
    """(1 − μ) over the largest curvature, 2/(nk) times the largest eigenvalue of ΦΦᵀ."""
    exact = values.double()
    curvature = 2 / (len(values) * outputs) * float(torch.linalg.eigvalsh(exact @ exact.T)[-1])
    if not curvature > 0:
        raise ExhumeError("expected a loss that changes with the weights, found no curvature; give a step size")
    return (1 - recipe.momentum) / curvature


def require_opacus() -> Any:
    """Opacus, which is an extra: whoever wants to train privately reads how to get it."""
    try:
        return import_module("opacus")
    except ImportError as problem:
        raise UsageError(
            "expected Opacus for training with differential privacy, found none; pip install 'exhume[dp]'"
        ) from problem
