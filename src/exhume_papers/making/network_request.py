"""Networks as users ask for them: how they are trained, and how large they are."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from exhume.requests.request import Option
from exhume.validation import parse_fields
from exhume_papers.making.victim_request import Activation, Params, PrivateRequest, Ratio
from exhume_papers.making.victim_values import parse_shape, resolve_width

if TYPE_CHECKING:
    from exhume.data.dataset import Dataset
    from exhume_papers.victims.victim_config import VictimConfig


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
        from exhume_papers.victims.recipe import DescentRecipe

        recipe = {name: getattr(self, name) for name in DescentRecipe.model_fields}
        own = ("outputs", "loss", "initial", "features_at", "freeze", "seed")
        fields = {
            **{name: getattr(self, name) for name in own},
            "zero_head": self.zero_head or self.initial == "zero",
            "recipe": DescentRecipe.parse(**recipe),
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
        from exhume_papers.networks.resnet import POSITIONS
        from exhume_papers.victims.network_plans import ResNetConfig, image_side

        shared = self.fields_for(data)
        padded = image_side(data, "a ResNet")[1] + 2 * ResNetConfig.model_fields["padding"].default
        positions = POSITIONS if self.kernel is None else max(1, padded - self.kernel + 1)
        each = shared["outputs"] * positions**2
        channels = self.sized(self.width, data, each)
        return ResNetConfig.parse(**shared, channels=channels, kernel=self.kernel)


class VisionTransformerRequest(SizedRequest):
    """Train a Vision Transformer whose head reads all tokens, or a class token, and write a run folder.

    Example: exhume train vit --data cifar10 --side 16 --samples 4 --ratio 4 --until 1e-7 --out runs/d
    """

    command: ClassVar[str] = "train vit"

    embedding: Annotated[int | None, Field(ge=1), Option("Numbers of a token; the head reads all tokens.")] = None
    patch: Annotated[int, Field(ge=1), Option("Pixels on a side of a patch.")] = 4
    depth: Annotated[int, Field(ge=1), Option("Transformer layers.")] = 2
    heads: Annotated[int, Field(ge=1), Option("Attention heads.")] = 2
    class_token: Annotated[bool, Option("The head reads a class token, as in ViT-B/16, instead of all tokens.")] = False

    def config(self, data: "Dataset") -> "VictimConfig":
        from exhume_papers.victims.network_plans import VisionTransformerConfig, image_side

        shared = self.fields_for(data)
        tokens = 1 if self.class_token else max(1, image_side(data, "a Vision Transformer")[1] // self.patch) ** 2
        each = shared["outputs"] * tokens
        size = self.sized(self.embedding, data, each, multiple=self.heads)
        return VisionTransformerConfig.parse(
            **shared,
            embedding=size,
            patch=self.patch,
            depth=self.depth,
            heads=self.heads,
            class_token=self.class_token,
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
