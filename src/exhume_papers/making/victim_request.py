"""Victims as users ask for them: the keys of a sweep's victim are the options of `exhume train`.

A request becomes a configuration once the data are there: a ratio p/(dn) needs d and n, outputs need the classes.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.wishes import data_config
from exhume.errors import UsageError
from exhume.networks.resnet import POSITIONS
from exhume.validation import parse_fields
from exhume.values import parse_defence, parse_shape, resolve_params, resolve_width
from exhume_papers.making.training import VictimConfig
from exhume_papers.victims.glm import GlmConfig, require_labels
from exhume_papers.victims.network_config import network_fields
from exhume_papers.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig, image_side
from exhume_papers.victims.privacy import Privacy
from exhume_papers.victims.random_features import RandomFeaturesConfig
from exhume_papers.victims.targets import default_outputs
from exhume_papers.victims.two_layer import TwoLayerConfig


class VictimRequest(BaseModel):
    """The data, which all victims need."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    data: str
    samples: int
    dim: int | None = None
    subspace: int | None = None
    labels: str | None = None
    noise: float | None = None
    data_dir: str | None = None
    classes: str | None = None
    per_class: str | None = None
    side: int | None = None
    standardise: str | None = None
    norm: str | None = None
    dtype: str = "float32"

    def data_config(self, seed: int) -> DataConfig:
        return data_config(self, seed)

    def defences(self) -> str:
        """What is done to the weights before they are published."""
        return ""

    def config(self, data: Dataset, seed: int) -> VictimConfig:
        raise NotImplementedError


class GlmRequest(VictimRequest):
    loss: str = "logistic"
    penalty: float = 1e-3

    def config(self, data: Dataset, seed: int) -> GlmConfig:
        config = GlmConfig.parse(loss=self.loss, penalty=self.penalty, seed=seed)
        require_labels(config, data)
        return config


class PrivateRequest(VictimRequest):
    """A defence, and training with differential privacy, if an epsilon or the noise is given."""

    defence: str | None = None
    epsilon: float | None = None
    noise_multiplier: float | None = None
    clip: float | None = None
    delta: float | None = None
    private_steps: int | None = None

    def defences(self) -> str:
        return parse_defence(self.defence)

    def privacy(self) -> Privacy | None:
        return Privacy.asked(
            epsilon=self.epsilon,
            noise_multiplier=self.noise_multiplier,
            clip=self.clip,
            delta=self.delta,
            private_steps=self.private_steps,
        )


class RandomFeaturesRequest(PrivateRequest):
    ratio: float | None = None
    params: int | None = None
    activation: str = "relu"
    bias: float = 0.0
    fit: str = "min-norm"
    ridge: float | None = None
    steps: int = 1_000_000
    step_size: float | None = None
    features: str = "seed"

    def config(self, data: Dataset, seed: int) -> RandomFeaturesConfig:
        n, d = data.inputs.shape
        return parse_fields(
            RandomFeaturesConfig,
            params=resolve_params(self.ratio, self.params, n, d),
            activation=self.activation,
            bias=self.bias,
            fit="ridge" if self.ridge is not None and self.fit == "min-norm" else self.fit,
            ridge=self.ridge,
            steps=self.steps,
            step_size=self.step_size,
            features=self.features,
            privacy=self.privacy(),
            seed=seed,
        )


class NetworkRequest(PrivateRequest):
    """How a network is trained, and what an attacker will know of its start."""

    loss: str = "square"
    outputs: int | None = None
    freeze: bool = False
    method: str = "gd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int | None = None
    step_size: float | None = None
    until: float | None = None
    steps: int = 100_000
    growing: bool = False
    zero_head: bool = False
    initial: str = "known"
    features_at: str = "trained"

    def fields(self, seed: int) -> dict[str, Any]:
        """The fields that all networks share, checked."""
        return network_fields(self, seed, self.privacy())

    def fields_for(self, data: Dataset, seed: int) -> dict[str, Any]:
        """The same with the number of outputs that these data ask for."""
        fields = self.fields(seed)
        return fields | {"outputs": self.outputs or default_outputs(data, fields["loss"])}


class SizedRequest(NetworkRequest):
    width: int | None = None
    ratio: float | None = None
    params: int | None = None

    def units(self, data: Dataset, each: int, multiple: int = 1) -> int:
        n, d = data.inputs.shape
        return resolve_width(self.width, self.ratio, self.params, n, d, each, multiple)


class TwoLayerRequest(SizedRequest):
    activation: str = "relu"
    knows_first_layer: bool = False
    first_scale: float = 1.0

    def config(self, data: Dataset, seed: int) -> TwoLayerConfig:
        shared = self.fields_for(data, seed)
        return TwoLayerConfig.parse(
            **shared,
            width=self.units(data, shared["outputs"]),
            activation=self.activation,
            knows_first_layer=self.knows_first_layer,
            first_scale=self.first_scale,
        )


class ResNetRequest(SizedRequest):
    kernel: int | None = None

    def config(self, data: Dataset, seed: int) -> ResNetConfig:
        shared = self.fields_for(data, seed)
        padded = image_side(data, "a ResNet")[1] + 2 * ResNetConfig.model_fields["padding"].default
        positions = POSITIONS if self.kernel is None else max(1, padded - self.kernel + 1)
        channels = self.units(data, shared["outputs"] * positions**2)
        return ResNetConfig.parse(**shared, channels=channels, kernel=self.kernel)


class VisionTransformerRequest(NetworkRequest):
    embedding: int | None = None
    ratio: float | None = None
    params: int | None = None
    patch: int = 4
    depth: int = 2
    heads: int = 2

    def config(self, data: Dataset, seed: int) -> VisionTransformerConfig:
        shared = self.fields_for(data, seed)
        n, d = data.inputs.shape
        if min(self.patch, self.heads) < 1:
            raise UsageError(f"expected patch and heads from 1, found {self.patch} and {self.heads}")
        tokens = max(1, image_side(data, "a Vision Transformer")[1] // self.patch) ** 2
        each = shared["outputs"] * tokens
        size = resolve_width(self.embedding, self.ratio, self.params, n, d, each, multiple=self.heads)
        return VisionTransformerConfig.parse(
            **shared, embedding=size, patch=self.patch, depth=self.depth, heads=self.heads
        )


class FactoryRequest(NetworkRequest):
    """`factory` is the kind of the victim itself: package.module:factory."""

    factory: str
    head: str | None = None
    image_shape: str | None = None

    def config(self, data: Dataset, seed: int) -> FactoryConfig:
        shape = parse_shape(self.image_shape, data.inputs.shape[1])
        return FactoryConfig.parse(**self.fields(seed), factory=self.factory, head=self.head, input_shape=shape)


KINDS: dict[str, type[VictimRequest]] = {
    "rf": RandomFeaturesRequest,
    "glm": GlmRequest,
    "two-layer": TwoLayerRequest,
    "resnet": ResNetRequest,
    "vit": VisionTransformerRequest,
}


def request_kind(kind: object) -> type[VictimRequest]:
    """The kind of request by the name of a victim, as `exhume train` takes it."""
    if isinstance(kind, str) and ":" in kind:
        return FactoryRequest
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"expected a kind out of {', '.join(KINDS)} or package.module:factory, found {kind!r}")
    return KINDS[kind]
