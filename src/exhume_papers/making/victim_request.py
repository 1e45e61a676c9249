"""Victims as users ask for them: the options of `exhume train KIND`, which are the keys of a sweep's victim as well.

A request becomes a configuration once the data are there: a ratio p/(dn) needs d and n, outputs need the classes.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from exhume.data.config import DataConfig
from exhume.requests.images import ImageOptions
from exhume.requests.kinds import Seed
from exhume.requests.request import Option, Request
from exhume.validation import parse_fields
from exhume_papers.making.victim_values import parse_defence, resolve_params

if TYPE_CHECKING:
    from exhume.data.dataset import Dataset
    from exhume_papers.victims.privacy import Privacy
    from exhume_papers.victims.victim_config import VictimConfig

Ratio = Annotated[float | None, Option("p/(dn): weights of the head for each number in the data.")]
Params = Annotated[int | None, Option("p itself, instead of --ratio.")]
Activation = Annotated[
    str, Option("relu, tanh, relu+tanh, gelu, sigmoid, softplus, erf, silu, leaky_relu, elu, relu6 or linear.")
]


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
