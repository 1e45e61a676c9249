"""Any victim, trained: one form for the run folder, whatever it is a model of."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.running.interruption import Interruption
from exhume.data.dataset import Dataset
from exhume.errors import ExhumeError
from exhume.features.rows import Rows, write_rows
from exhume.machine import memory_bytes
from exhume.observation import FEATURES_FILE, Observation
from exhume_papers.victims.descent_loop import Surroundings
from exhume_papers.victims.glm import GlmConfig, train_glm
from exhume_papers.victims.network import train_network
from exhume_papers.victims.network_config import NetworkConfig
from exhume_papers.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig
from exhume_papers.victims.privacy import Spent
from exhume_papers.victims.random_features import (
    RandomFeaturesConfig,
    draw_rows,
    train_private_random_features,
    train_random_features,
)
from exhume_papers.victims.recipe import Descent
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer
from exhume_papers.victims.victim_config import VictimConfig

HIDDEN_COPIES = 5  # matrices of n x h numbers that the training of a two-layer network keeps
PRIVATE_COPIES = 3  # of what private training keeps besides: features, gradients of samples, their clipped sum


@dataclass(frozen=True, eq=False, repr=False)
class TrainedVictim:
    """What an attacker would see without any defence, and what only the owner knows.

    `in_the_span`: the weights are a combination of the observation's features by construction, up to rounding.
    """

    name: str
    observation: Observation
    numbers: dict[str, Any]
    """What the summary tells of the training."""
    in_the_span: bool
    initial_head: Float[Tensor, "k p"] | None = None
    """None where the weights are the head itself."""
    coefficients: Float[Tensor, " n"] | None = None


def _random_features(config: RandomFeaturesConfig, data: Dataset, folder: Path, around: Surroundings) -> TrainedVictim:
    private_copies = 0 if config.privacy is None else PRIVATE_COPIES * len(data.inputs)
    _check_memory(config.params, config.params * (1 + private_copies), data)
    rows: Rows = draw_rows(config, data.inputs.shape[1])
    if config.features == "file":
        rows = write_rows(rows, folder / FEATURES_FILE)
    if config.privacy is not None:
        private = train_private_random_features(config, data, rows, around.progress)
        spent = _private_numbers(config, private.descent) | _spent(private.spent)
        return TrainedVictim(config.name, private.observation, spent, in_the_span=False)
    victim = train_random_features(config, data, rows)
    numbers = {
        "activation": config.activation,
        "fit": config.fit,
        "loss_function": "logistic" if config.fit == "logistic" else "square",
        "training_loss": victim.training_loss,
        "steps": victim.steps,
        "step_size": config.step_size,
        "train_seed": config.seed,
    }
    return TrainedVictim(config.name, victim.observation, numbers, in_the_span=True, coefficients=victim.coefficients)


def _glm(config: GlmConfig, data: Dataset, folder: Path, around: Surroundings) -> TrainedVictim:
    victim = train_glm(config, data)
    numbers = {
        "activation": "linear",
        "fit": "penalised",
        "loss_function": config.loss,
        "training_loss": victim.training_loss,
        "steps": victim.steps,
        "step_size": None,
        "train_seed": config.seed,
    }
    return TrainedVictim(config.name, victim.observation, numbers, in_the_span=False, coefficients=victim.coefficients)


def _private_numbers(config: RandomFeaturesConfig, descent: Descent) -> dict[str, Any]:
    return {
        "activation": config.activation,
        "fit": "dp-sgd",
        "loss_function": "logistic" if config.fit == "logistic" else "square",
        "training_loss": descent.loss,
        "steps": descent.steps,
        "step_size": descent.step_size,
        "training": descent.describe(),
        "train_seed": config.seed,
    }


def _spent(spent: Spent | None) -> dict[str, Any]:
    """What a private training came to, in numbers and in words."""
    return {} if spent is None else {**spent.numbers(), "privacy": spent.describe()}


def _two_layer(config: TwoLayerConfig, data: Dataset, folder: Path, around: Surroundings) -> TrainedVictim:
    outputs = config.outputs_for(data)
    a_unit = outputs + HIDDEN_COPIES * len(data.inputs)
    if config.privacy is not None:  # gradients sample by sample
        a_unit += data.inputs.shape[1] * (len(data.inputs) + PRIVATE_COPIES)
    _check_memory(config.width * outputs, config.width * a_unit, data)
    victim = train_two_layer(config, data, folder / FEATURES_FILE, _interruptible(around))
    numbers = {
        "activation": config.activation,
        **_numbers(config, victim.descent, victim.observation, victim.scale),
        **_spent(victim.spent),
    }
    return TrainedVictim(config.name, victim.observation, numbers, False, _known(config, victim.decayed_head))


def _network(
    config: ResNetConfig | VisionTransformerConfig | FactoryConfig, data: Dataset, folder: Path, around: Surroundings
) -> TrainedVictim:
    victim = train_network(config, data, _interruptible(around))
    numbers = {
        "activation": config.phi,
        **_numbers(config, victim.descent, victim.observation, victim.scale),
        **_spent(victim.spent),
        "note": victim.note,
    }
    return TrainedVictim(config.name, victim.observation, numbers, False, _known(config, victim.decayed_head))


def _interruptible(around: Surroundings) -> Surroundings:
    """Ctrl-C ends the descent after its current step; before and after it acts at once."""
    interruption = Interruption()
    return replace(around, stop=lambda: interruption.asked, guard=lambda: interruption)


def _numbers(config: NetworkConfig, descent: Descent, observation: Observation, scale: float) -> dict[str, Any]:
    decayed = {"start_left": scale} if config.recipe.weight_decay else {}
    return {
        **decayed,
        "outputs": len(observation.weights),
        "loss_function": config.loss,
        "training_loss": descent.loss,
        "steps": descent.steps,
        "step_size": descent.step_size,
        "training": descent.describe(),
        "features_at": config.features_at,
        "train_seed": config.seed,
    }


def _known(config: NetworkConfig, head: Float[Tensor, "k p"]) -> Float[Tensor, "k p"] | None:
    """What is left of the initial head, where the weights of the observation are the change from it."""
    return head if config.initial == "known" else None


def _check_memory(params: int, kept: int, data: Dataset) -> None:
    """Before hours are spent: rows are streamed, but weights (and a network's features) are kept in memory."""
    memory = memory_bytes()
    if kept * data.inputs.dtype.itemsize > memory:
        raise ExhumeError(
            f"expected weights that fit in the {memory / 2**30:.0f} GiB of this machine, found p = {params:,}; "
            "choose a smaller --ratio or --params"
        )


TRAINING: dict[type[VictimConfig], Callable[[Any, Dataset, Path, Surroundings], TrainedVictim]] = {
    RandomFeaturesConfig: _random_features,
    GlmConfig: _glm,
    TwoLayerConfig: _two_layer,
    ResNetConfig: _network,
    VisionTransformerConfig: _network,
    FactoryConfig: _network,
}


def train_victim(config: VictimConfig, data: Dataset, folder: Path, around: Surroundings) -> TrainedVictim:
    """Trains; features that are kept as a file go to the folder. Raises TrainingStopped on Ctrl-C."""
    return TRAINING[type(config)](config, data, folder, around)
