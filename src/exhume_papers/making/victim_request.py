"""Victims as users ask for them: the options of `exhume train KIND`, which are the keys of a sweep's victim as well.

A request becomes a configuration once the data are there: a ratio p/(dn) needs d and n, outputs need the classes.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from exhume.data.config import DataConfig
from exhume.errors import UsageError
from exhume.requests.images import ImageOptions
from exhume.requests.kinds import Seed
from exhume.requests.request import Option, Request
from exhume.validation import parse_fields
from exhume.values import parse_defence, parse_shape, resolve_params, resolve_width

if TYPE_CHECKING:
    from exhume.data.dataset import Dataset
    from exhume_papers.making.training import VictimConfig
    from exhume_papers.victims.privacy import Privacy

Ratio = Annotated[float | None, Option("p/(dn): weights of the head for each number in the data.")]
Params = Annotated[int | None, Option("p itself, instead of --ratio.")]
Activation = Annotated[str, Option("relu, tanh, relu+tanh, gelu, sigmoid, softplus, erf or linear.")]


class DataOptions(Request):
    """Which data."""

    data: Annotated[str, Option("sphere, faces, cifar10, tiny-imagenet, or a folder of images.")]
    samples: Annotated[int, Option("n, the number of training samples.")]
    dim: Annotated[int | None, Option("d, for the sphere.")] = None
    subspace: Annotated[int | None, Option("Sphere: draw inside a random subspace of r dimensions.")] = None
    labels: Annotated[str | None, Option("Sphere: linear (noisy) or sign.")] = None
    noise: Annotated[float | None, Option("Sphere: variance of the label noise (0.25).")] = None
    dtype: Annotated[str, Option("float32 or float64.")] = "float32"


class VictimRequest(ImageOptions, DataOptions):
    """What all victims need: the data, and where to put them."""

    seed: Seed = 0
    out: Annotated[Path | None, Option("The run folder to make.", required=True)] = None

    def data_config(self) -> DataConfig:
        from exhume import seeds

        return DataConfig.parse(
            name=self.data,
            samples=self.samples,
            dim=self.dim,
            subspace=self.subspace,
            label_rule=self.labels,
            noise=self.noise,
            dtype=self.dtype,
            seed=seeds.derive(self.seed, "data"),
            **self.image_fields(),
        )

    def config(self, data: "Dataset") -> "VictimConfig":
        raise NotImplementedError

    def kept(self) -> dict[str, Any]:
        """What the configuration of a run keeps of it: all but where it went."""
        return {name: value for name, value in self.to_config().items() if name != "out"}

    def defences(self) -> str:
        """What is done to the weights before they are published."""
        return ""

    def own_code(self) -> str | None:
        """The code of the user's own that makes the victim."""
        return None


class GlmRequest(VictimRequest):
    """Fit a generalised linear model f(x) = theta.x + b to its minimum and write a run folder.

    Example: exhume train glm --data faces --samples 20 --loss square --out runs/g
    """

    command: ClassVar[str] = "train glm"

    loss: Annotated[str, Option("square or logistic (labels -1 and +1).")] = "logistic"
    penalty: Annotated[float, Option("lambda of (lambda / 2) ||theta||^2; the intercept has none.")] = 1e-3

    def config(self, data: "Dataset") -> "VictimConfig":
        from exhume_papers.victims.glm import GlmConfig, require_labels

        config = GlmConfig.parse(loss=self.loss, penalty=self.penalty, seed=self.seed)
        require_labels(config, data)
        return config


class PrivateRequest(VictimRequest):
    """A defence, and training with differential privacy, if an epsilon or the noise is given."""

    defence: Annotated[
        str | None,
        Option(
            "What is done to the head before it is published, e.g. int8 or prune50,int8: fp16, bf16, int8, int8-row, "
            "pruneP, obsP (P %), noiseX."
        ),
    ] = None
    epsilon: Annotated[float | None, Option("Train by DP-SGD, with as much noise as this epsilon takes.")] = None
    noise_multiplier: Annotated[
        float | None, Option("DP-SGD with this noise, in units of --clip, instead of --epsilon.")
    ] = None
    clip: Annotated[
        float | None, Option("DP-SGD: norm that each sample's gradient is cut to; default: the median at the start.")
    ] = None
    delta: Annotated[float | None, Option("DP-SGD: the delta of (epsilon, delta); default 1e-5.")] = None
    private_steps: Annotated[int | None, Option("DP-SGD: its number of steps; default 200.")] = None

    def defences(self) -> str:
        return parse_defence(self.defence)

    def privacy(self) -> "Privacy | None":
        from exhume_papers.victims.privacy import Privacy

        return Privacy.asked(
            epsilon=self.epsilon,
            noise_multiplier=self.noise_multiplier,
            clip=self.clip,
            delta=self.delta,
            private_steps=self.private_steps,
        )


class RandomFeaturesRequest(PrivateRequest):
    """Train random-features regression f(x) = phi(Vx).theta and write a run folder.

    Example: exhume train rf --data sphere --dim 100 --samples 20 --ratio 3 --activation relu --seed 0 --out runs/a
    """

    command: ClassVar[str] = "train rf"

    ratio: Ratio = None
    params: Params = None
    activation: Activation = "relu"
    bias: Annotated[float, Option("Standard deviation of the features' bias; 0: none.")] = 0.0
    fit: Annotated[str, Option("min-norm, ridge or logistic.")] = "min-norm"
    ridge: Annotated[float | None, Option("The ridge penalty lambda; implies --fit ridge.")] = None
    steps: Annotated[int, Option("Gradient steps of the logistic fit.")] = 1_000_000
    step_size: Annotated[float | None, Option("Its step; default: 1 / the largest curvature.")] = None
    features: Annotated[str, Option("How V is kept: its seed, or a file that is memory-mapped.")] = "seed"

    def config(self, data: "Dataset") -> "VictimConfig":
        from exhume_papers.victims.random_features import RandomFeaturesConfig

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
            seed=self.seed,
        )


class NetworkRequest(PrivateRequest):
    """How a network is trained, and what an attacker will know of its start."""

    loss: Annotated[str, Option("square, logistic (labels -1 and +1) or cross-entropy.")] = "square"
    outputs: Annotated[int | None, Option("k; default: by the classes (two classes: one output).")] = None
    freeze: Annotated[bool, Option("Train the head alone (a linear probe).")] = False
    method: Annotated[
        str, Option("gd (full batch), sgd (mini-batches), adam, or closed-form (--freeze, square loss).")
    ] = "gd"
    momentum: Annotated[float, Option("Of gd and sgd.")] = 0.0
    weight_decay: Annotated[float, Option("lambda of (lambda / 2) ||weights||^2.")] = 0.0
    batch_size: Annotated[int | None, Option("Of sgd and adam; default: half the samples, or all.")] = None
    step_size: Annotated[float | None, Option("Default: 1 / the largest curvature; adam: 1e-3.")] = None
    until: Annotated[float | None, Option("The loss to reach; default: 1e-9 square, else 1e-3.")] = None
    steps: Annotated[int, Option("At most so many steps.")] = 100_000
    growing: Annotated[bool, Option("gd: lengthen the step as the curvature falls, towards large margins.")] = False
    zero_head: Annotated[bool, Option("Start the head at zero.")] = False
    initial: Annotated[
        str, Option("What an attacker knows of the initial head: known, seed, distribution or zero.")
    ] = "known"
    features_at: Annotated[
        str, Option("trained, or midpoint: halfway to the initial layers, which are then known.")
    ] = "trained"

    def fields(self) -> dict[str, Any]:
        """The fields that all networks share, checked."""
        from exhume_papers.victims.network_config import NetworkConfig
        from exhume_papers.victims.recipe import Recipe

        recipe = {name: getattr(self, name) for name in Recipe.model_fields}
        own = ("outputs", "loss", "initial", "features_at", "freeze", "seed")
        fields = {
            **{name: getattr(self, name) for name in own},
            "zero_head": self.zero_head or self.initial == "zero",
            "recipe": Recipe.parse(**recipe),
            "privacy": self.privacy(),
        }
        parse_fields(NetworkConfig, **fields)
        return fields

    def fields_for(self, data: "Dataset") -> dict[str, Any]:
        """The same with the number of outputs that these data ask for."""
        from exhume_papers.victims.targets import default_outputs

        fields = self.fields()
        return fields | {"outputs": self.outputs or default_outputs(data, fields["loss"])}


class SizedRequest(NetworkRequest):
    """A network whose width may follow from the number of its head's weights."""

    ratio: Ratio = None
    params: Params = None

    def sized(self, width: int | None, data: "Dataset", each: int, multiple: int = 1) -> int:
        n, d = data.inputs.shape
        return resolve_width(width, self.ratio, self.params, n, d, each, multiple)


class TwoLayerRequest(SizedRequest):
    """Train both layers of f(x) = W2 phi(W1 x) and write a run folder.

    Example: exhume train two-layer --data faces --samples 10 --ratio 4 --out runs/b
    """

    command: ClassVar[str] = "train two-layer"

    width: Annotated[int | None, Field(ge=1), Option("h, the hidden units; p = k h.")] = None
    activation: Activation = "relu"
    knows_first_layer: Annotated[bool, Option("The attacker knows the first layer's initial weights as well.")] = False
    first_scale: Annotated[float, Option("Size of the first layer's initial weights, over the usual one.")] = 1.0

    def config(self, data: "Dataset") -> "VictimConfig":
        from exhume_papers.victims.two_layer import TwoLayerConfig

        shared = self.fields_for(data)
        return TwoLayerConfig.parse(
            **shared,
            width=self.sized(self.width, data, shared["outputs"]),
            activation=self.activation,
            knows_first_layer=self.knows_first_layer,
            first_scale=self.first_scale,
        )


class ResNetRequest(SizedRequest):
    """Train a residual network without batch norm and pooling, and write a run folder.

    Example: exhume train resnet --data cifar10 --side 16 --samples 4 --ratio 4 --until 1e-7 --out runs/c
    """

    command: ClassVar[str] = "train resnet"

    width: Annotated[int | None, Field(ge=1), Option("Channels of all convolutions.")] = None
    kernel: Annotated[
        int | None, Field(ge=1), Option("Of the first convolution; default: one that leaves 7x7 positions.")
    ] = None

    def config(self, data: "Dataset") -> "VictimConfig":
        from exhume.networks.resnet import POSITIONS
        from exhume_papers.victims.network_plans import ResNetConfig, image_side

        shared = self.fields_for(data)
        padded = image_side(data, "a ResNet")[1] + 2 * ResNetConfig.model_fields["padding"].default
        positions = POSITIONS if self.kernel is None else max(1, padded - self.kernel + 1)
        each = shared["outputs"] * positions**2
        channels = self.sized(self.width, data, each)
        return ResNetConfig.parse(**shared, channels=channels, kernel=self.kernel)


class VisionTransformerRequest(SizedRequest):
    """Train a Vision Transformer whose head reads all tokens, and write a run folder.

    Example: exhume train vit --data cifar10 --side 16 --samples 4 --ratio 4 --until 1e-7 --out runs/d
    """

    command: ClassVar[str] = "train vit"

    embedding: Annotated[int | None, Field(ge=1), Option("Numbers of a token; the head reads all tokens.")] = None
    patch: Annotated[int, Field(ge=1), Option("Pixels on a side of a patch.")] = 4
    depth: Annotated[int, Field(ge=1), Option("Transformer layers.")] = 2
    heads: Annotated[int, Field(ge=1), Option("Attention heads.")] = 2

    def config(self, data: "Dataset") -> "VictimConfig":
        from exhume_papers.victims.network_plans import VisionTransformerConfig, image_side

        shared = self.fields_for(data)
        tokens = max(1, image_side(data, "a Vision Transformer")[1] // self.patch) ** 2
        each = shared["outputs"] * tokens
        size = self.sized(self.embedding, data, each, multiple=self.heads)
        return VisionTransformerConfig.parse(
            **shared, embedding=size, patch=self.patch, depth=self.depth, heads=self.heads
        )


class FactoryRequest(NetworkRequest):
    """Train your own torch.nn.Module, which a function without arguments returns, and write a run folder.

    Example: exhume train my_models:small --data faces --samples 10 --head fc --out runs/e
    """

    command: ClassVar[str] = "train"

    factory: Annotated[str, Option("Your function: package.module:factory.", argument=True)]
    head: Annotated[str | None, Option("The linear layer that is observed; default: the last one that is called.")] = (
        None
    )
    image_shape: Annotated[
        str | None, Option("How the model sees a row, e.g. 3,32,32 or flat; default: as the images are.")
    ] = None

    def config(self, data: "Dataset") -> "VictimConfig":
        from exhume_papers.victims.network_plans import FactoryConfig

        shape = parse_shape(self.image_shape, data.inputs.shape[1])
        return FactoryConfig.parse(**self.fields(), factory=self.factory, head=self.head, input_shape=shape)

    def own_code(self) -> str | None:
        return self.factory


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
