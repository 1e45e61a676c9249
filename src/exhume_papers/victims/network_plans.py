"""Networks that can be victims, before training: a residual network, a Vision Transformer, a user's own model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from exhume import seeds
from exhume.data.dataset import Dataset
from exhume.errors import UsageError
from exhume.networks.feature_layout import feature_layout
from exhume.networks.head import find_head, name_of, plain_head
from exhume.networks.loading import load_factory
from exhume.validation import parse_fields
from exhume_papers.networks.resnet import POSITIONS, ResNet
from exhume_papers.networks.vit import VisionTransformer
from exhume_papers.victims.network_config import NetworkConfig


@dataclass(frozen=True, eq=False)
class NetworkPlan:
    """A network at the start of training, and how the same one without its weights is built again (NetworkSource)."""

    model: nn.Module
    head_name: str
    input_shape: tuple[int, ...]
    outputs: int
    factory: str
    arguments: Mapping[str, Any]
    feature_shape: tuple[int, ...] | None = None
    group_axis: int | None = None

    @property
    def head(self) -> nn.Linear:
        return find_head(self.model, self.head_name)


class ResNetConfig(NetworkConfig):
    """`channels` of all convolutions; `kernel` of the first one, None: as large as leaves 7 x 7 positions."""

    kind: ClassVar[str] = "resnet"
    is_network: ClassVar[bool] = True
    phi: ClassVar[str] = "relu"

    channels: int = Field(ge=1)
    kernel: int | None = Field(default=None, ge=1)
    padding: int = Field(default=1, ge=0)
    blocks: int = Field(default=4, ge=0)

    @classmethod
    def parse(cls, **fields: object) -> "ResNetConfig":
        return parse_fields(cls, **fields)

    def head_weights(self, data: Dataset) -> int:
        return self.channels * POSITIONS**2 * self.outputs_for(data)

    def plan(self, data: Dataset) -> NetworkPlan:
        colours, side = image_side(data, "a ResNet")
        arguments: dict[str, Any] = {
            "side": side,
            "channels": self.channels,
            "outputs": self.outputs_for(data),
            "kernel": self.kernel,
            "padding": self.padding,
            "blocks": self.blocks,
            "colours": colours,
        }
        model = ResNet(**arguments, stream=seeds.generator(self.seed, "network"))
        factory = "exhume_papers.networks.resnet:blank_resnet"
        shape = (data.inputs.shape[1],)
        return NetworkPlan(model, "head", shape, arguments["outputs"], factory, arguments, model.feature_shape, 0)


class VisionTransformerConfig(NetworkConfig):
    """`patch` pixels a side, and the sizes of the transformer. `class_token`: the head reads that alone."""

    kind: ClassVar[str] = "vit"
    is_network: ClassVar[bool] = True
    phi: ClassVar[str] = "gelu"

    embedding: int = Field(ge=1)
    patch: int = Field(default=4, ge=1)
    depth: int = Field(default=2, ge=1)
    heads: int = Field(default=2, ge=1)
    class_token: bool = False

    @classmethod
    def parse(cls, **fields: object) -> "VisionTransformerConfig":
        return parse_fields(cls, **fields)

    def head_weights(self, data: Dataset) -> int:
        side = data.image_shape[1] if data.image_shape else self.patch
        tokens = 1 if self.class_token else (side // self.patch) ** 2
        return self.embedding * tokens * self.outputs_for(data)

    def plan(self, data: Dataset) -> NetworkPlan:
        colours, side = image_side(data, "a Vision Transformer")
        arguments: dict[str, Any] = {
            "side": side,
            "patch": self.patch,
            "embedding": self.embedding,
            "depth": self.depth,
            "heads": self.heads,
            "outputs": self.outputs_for(data),
            "colours": colours,
        }
        if self.class_token:
            arguments["head_on"] = "class"
        model = VisionTransformer(**arguments, stream=seeds.generator(self.seed, "network"))
        factory = "exhume_papers.networks.vit:blank_vision_transformer"
        shape = (data.inputs.shape[1],)
        return NetworkPlan(model, "head", shape, arguments["outputs"], factory, arguments, model.feature_shape, 1)


class FactoryConfig(NetworkConfig):
    """A model of the user's own: `package.module:factory`, called without arguments.

    `head` None: the last linear layer that the model calls. `input_shape`: how the model sees one row; None: as
    the images are, or flat where the data are no images. `outputs` None: as many as the head has. Where the head is
    seen to read flattened channels, or tokens, whole channels are held out; else single coordinates are.
    """

    is_network: ClassVar[bool] = True

    factory: str
    head: str | None = None
    input_shape: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, **fields: object) -> "FactoryConfig":
        return parse_fields(cls, **fields)

    @property
    def name(self) -> str:
        return self.factory

    @property
    def own_code(self) -> str:
        return self.factory

    def plan(self, data: Dataset) -> NetworkPlan:
        d = data.inputs.shape[1]
        shape = self.input_shape or data.image_shape or (d,)
        if math.prod(shape) != d or min(shape) < 1:
            raise UsageError(f"expected an image shape of d = {d} numbers, found {list(shape)}")
        with torch.random.fork_rng(devices=[]):  # torch's own layers draw from the global stream
            torch.manual_seed(seeds.derive(self.seed, "network"))
            model = load_factory(self.factory)
        kind = next((values.dtype for values in model.parameters()), torch.float32)
        probe = torch.zeros((2, *shape), dtype=kind)
        head = plain_head(model, self.head, probe)
        if not head.weight.requires_grad:
            raise UsageError("expected a head that is trained, found one whose weights require no gradient")
        outputs = head.out_features if self.outputs is None else self.outputs
        layout = feature_layout(model, head, probe) or (None, None)
        return NetworkPlan(model, name_of(model, head), shape, outputs, self.factory, {}, *layout)


def image_side(data: Dataset, what: str) -> tuple[int, int]:
    """Colours and side of square images."""
    if data.image_shape is None:
        raise UsageError(f"expected images for {what}, found rows that are none; choose faces, cifar10 or a folder")
    colours, height, width = data.image_shape
    if height != width:
        raise UsageError(f"expected square images for {what}, found {height}x{width}")
    return colours, height
