"""Generalised linear models f(x) = θ·x + b with an intercept, fitted to the minimum of

    (1/n) Σ_i ℓ(f_i, y_i) + (λ / 2) ||θ||²,      ℓ = (f − y)² / 2   or   log(1 + exp(−y f)).

At the minimum θ = Xᵀα with n λ α_i = −ℓ'(f_i, y_i) and Σ_i α_i = 0, because b is not penalised: n + 1 equations in
(α, b), whatever the dimension, solved by Newton's method in float64. As an observation it is φ(x) = (x, 1), of the form
φ(Vx + b) with a linear φ.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from exhume.activations import activation
from exhume.data.dataset import Dataset
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Knowledge, Observation
from exhume.solving import solving
from exhume.validation import parse_fields
from exhume_papers.victims.norms import common_norm
from exhume_papers.victims.victim_config import VictimConfig

STEPS = 100
SOLVED = 1e-14
HALVINGS = 40


class GlmConfig(VictimConfig):
    """`penalty` is λ."""

    kind: ClassVar[str] = "glm"

    loss: Literal["square", "logistic"] = "logistic"
    penalty: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    privacy: None = None
    seed: int = Field(default=0, ge=0, lt=2**63)

    @classmethod
    def parse(cls, **fields: object) -> "GlmConfig":
        return parse_fields(cls, **fields)

    def head_weights(self, data: Dataset) -> int:
        return data.inputs.shape[1]


@dataclass(frozen=True, eq=False, repr=False)
class GlmVictim:
    observation: Observation
    coefficients: Float[Tensor, " n"]
    training_loss: float
    steps: int


def require_labels(config: GlmConfig, data: Dataset) -> None:
    if config.loss == "logistic" and not bool((data.labels.abs() == 1).all()):
        raise UsageError("expected labels -1 and +1 for the logistic loss, found others; choose two classes")


def train_glm(config: GlmConfig, data: Dataset) -> GlmVictim:
    require_labels(config, data)
    labels, inputs = data.labels.double(), data.inputs.double()
    gram = inputs @ inputs.T
    found = _newton(config, gram, labels)
    n, d = inputs.shape
    weights = torch.cat([found.coefficients @ inputs, found.intercept[None]])[None].to(data.inputs.dtype)
    rows = torch.cat([torch.eye(d), torch.zeros(1, d)]).to(data.inputs.dtype)
    bias = torch.cat([torch.zeros(d), torch.ones(1)]).to(data.inputs.dtype)
    observation = Observation(
        RidgeFeatures(HeldRows(rows), activation("linear"), bias),
        weights,
        Knowledge(n, common_norm(data.inputs)),
        data.image_shape,
    )
    return GlmVictim(observation, found.coefficients, found.loss, found.steps)


@dataclass(frozen=True, eq=False, repr=False)
class _Found:
    coefficients: Float[Tensor, " n"]
    intercept: Float[Tensor, ""]
    loss: float
    steps: int


@solving("the fit of the model")
def _newton(config: GlmConfig, gram: Float[Tensor, "n n"], labels: Float[Tensor, " n"]) -> _Found:
    """Newton's method on n λ α + ℓ'(K α + b) = 0 and Σ α = 0, with steps halved until the equations are closer."""
    n = len(labels)
    unknown = torch.zeros(n + 1, dtype=torch.float64)
    steps = 0
    while steps < STEPS:
        left = _equations(config, gram, labels, unknown)
        if float(left.norm()) < SOLVED * n:
            break
        outputs = gram @ unknown[:n] + unknown[n]
        bend = torch.ones(n).double() if config.loss == "square" else torch.sigmoid(outputs) * torch.sigmoid(-outputs)
        matrix = torch.zeros(n + 1, n + 1, dtype=torch.float64)
        matrix[:n, :n] = n * config.penalty * torch.eye(n) + bend[:, None] * gram
        matrix[:n, n], matrix[n, :n] = bend, 1.0
        move = torch.linalg.solve(matrix, left)
        length = 1.0
        for _ in range(HALVINGS):
            if float(_equations(config, gram, labels, unknown - length * move).norm()) < float(left.norm()):
                break
            length /= 2
        else:
            break  # at the rounding
        unknown = unknown - length * move
        steps += 1
    if not torch.isfinite(unknown).all():
        raise ExhumeError("expected a model that can be fitted, found overflow; check the scale of the data")
    outputs = gram @ unknown[:n] + unknown[n]
    errors = (outputs - labels).square() / 2 if config.loss == "square" else _logistic(labels * outputs)
    return _Found(unknown[:n], unknown[n], float(errors.mean()), steps)


def _equations(
    config: GlmConfig, gram: Float[Tensor, "n n"], labels: Float[Tensor, " n"], unknown: Float[Tensor, " e"]
) -> Float[Tensor, " e"]:
    n = len(labels)
    outputs = gram @ unknown[:n] + unknown[n]
    slopes = outputs - labels if config.loss == "square" else -labels * torch.sigmoid(-labels * outputs)
    return torch.cat([n * config.penalty * unknown[:n] + slopes, unknown[:n].sum()[None]])


def _logistic(margins: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return -torch.nn.functional.logsigmoid(margins)
