"""Differential privacy as users ask for it: an ε to keep to, or the noise itself, and what training came to.

What is not given is measured: the clip is the median norm of the samples' gradients at the start, the step size
1 / curvature. Both look at the data, and ε does not cover them (see `private.py`): `Spent` says so.
"""

import copy
import math
import warnings
from dataclasses import dataclass
from importlib import import_module

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from exhume.defences.private import PrivateRecipe, require_opacus
from exhume.errors import UsageError
from exhume.networks.loading import check_inputs, prepare_for_attack
from exhume.validation import parse_fields
from exhume_papers.victims.descent import ModuleIterates, TrainedModule, check_outputs
from exhume_papers.victims.losses import LossName, loss_named
from exhume_papers.victims.private import Progress, train_private_module
from exhume_papers.victims.recipe import Descent, DescentRecipe, HistoryPoint


class Privacy(BaseModel):
    """`epsilon` to keep to over all steps, or `noise` (σ, in units of the clip) as it is: exactly one of the two."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epsilon: float | None = Field(default=None, gt=0)
    noise: float | None = Field(default=None, ge=0)
    clip: float | None = Field(default=None, gt=0)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    steps: int = Field(default=200, ge=1)

    @classmethod
    def parse(cls, **fields: object) -> "Privacy":
        return parse_fields(cls, **fields)

    @classmethod
    def asked(
        cls,
        *,
        epsilon: float | None,
        noise_multiplier: float | None,
        clip: float | None,
        delta: float | None,
        private_steps: int | None,
    ) -> "Privacy | None":
        """What a command line or a sweep asks for; None where that is no privacy at all."""
        fields = {"epsilon": epsilon, "noise": noise_multiplier, "clip": clip, "delta": delta, "steps": private_steps}
        given = {name: value for name, value in fields.items() if value is not None}
        if epsilon is not None or noise_multiplier is not None:
            return cls.parse(**given)
        if given:
            raise UsageError(
                "expected --epsilon or --noise-multiplier with --clip, --delta and --private-steps, found neither"
            )
        return None

    @model_validator(mode="after")
    def _one_of_two(self) -> "Privacy":
        if (self.epsilon is None) == (self.noise is None):
            found = "neither" if self.epsilon is None else "both"
            raise UsageError(f"expected one of --epsilon and --noise-multiplier for private training, found {found}")
        return self

    def check(self, recipe: DescentRecipe) -> None:
        """DP-SGD knows plain steps and momentum, and its number of steps is fixed before it looks at the data."""
        if recipe.method not in ("gd", "sgd") or recipe.weight_decay:
            found = f"weight decay {recipe.weight_decay:g}" if recipe.weight_decay else recipe.method
            raise UsageError(f"expected gd or sgd without weight decay for private training, found {found}")
        if recipe.until is not None:
            raise UsageError(
                f"expected private training to take all its steps, found a loss of {recipe.until:g} to stop at; "
                "leave --until out and give --private-steps"
            )


@dataclass(frozen=True)
class Spent:
    """What a private training came to. `measured`: what was chosen by a look at the data, which ε does not cover."""

    epsilon: float
    delta: float
    noise: float
    clip: float
    steps: int
    measured: tuple[str, ...]

    def numbers(self) -> dict[str, float | None]:
        """The keys of summary.json; without noise there is no finite ε."""
        bounded = self.epsilon if math.isfinite(self.epsilon) else None
        return {"epsilon": bounded, "delta": self.delta, "noise_multiplier": self.noise, "clip": self.clip}

    def describe(self) -> str:
        bounded = f"epsilon {self.epsilon:.3g}" if math.isfinite(self.epsilon) else "no finite epsilon"
        sentence = (
            f"DP-SGD: {bounded} at delta {self.delta:g} (noise multiplier {self.noise:.3g}, clip {self.clip:.3g}, "
            f"{self.steps:,} steps)"
        )
        if not self.measured:
            return sentence
        were = "was" if len(self.measured) == 1 else "were"
        what = " and the ".join(self.measured)
        return f"{sentence}; the {what} {were} measured on the data, which epsilon does not cover"


@dataclass(frozen=True, eq=False)
class PrivatelyTrained:
    module: TrainedModule
    spent: Spent


def train_privately(
    model: nn.Module,
    inputs: Float[Tensor, "n d"],
    targets: Float[Tensor, "n k"],
    loss: LossName,
    privacy: Privacy,
    recipe: DescentRecipe,
    image_shape: tuple[int, ...] | None = None,
    progress: Progress | None = None,
) -> PrivatelyTrained:
    """`train_module` with differential privacy: a copy of the module is trained, in a fixed number of steps."""
    check_inputs(inputs)
    shaped = inputs if image_shape is None else inputs.reshape(len(inputs), *image_shape)
    start = copy.deepcopy(model)
    prepare_for_attack(start)
    check_outputs(start, shaped, targets)
    used = private_recipe(privacy, recipe, start, shaped, targets, loss)
    done = train_private_module(start, inputs, targets, loss, used, image_shape, progress)
    state = {name: value.detach().clone() for name, value in done.model.state_dict().items()}
    descent = descent_of(done.training_loss, done.step_size, used.steps)
    return PrivatelyTrained(
        TrainedModule(done.model, done.initial, state, descent, done.note), spent(privacy, used, done.epsilon)
    )


def private_recipe(
    privacy: Privacy,
    recipe: DescentRecipe,
    model: nn.Module,
    inputs: Tensor,
    targets: Float[Tensor, "n k"],
    loss: LossName,
) -> PrivateRecipe:
    """The recipe with every number in it but the step size; inputs are in the model's own shape."""
    require_opacus()
    privacy.check(recipe)
    batch = recipe.batch(len(inputs))
    rate = 1.0 if batch is None else batch / len(inputs)
    noise = privacy.noise
    if noise is None:
        assert privacy.epsilon is not None
        noise = noise_for(privacy.epsilon, privacy.delta, rate, privacy.steps)
    return PrivateRecipe(
        clip=privacy.clip or median_gradient_norm(model, inputs, targets, loss),
        noise=noise,
        steps=privacy.steps,
        batch=batch,
        delta=privacy.delta,
        step_size=recipe.step_size,
        momentum=recipe.momentum,
        seed=recipe.seed,
    )


def spent(privacy: Privacy, used: PrivateRecipe, epsilon: float) -> Spent:
    missing = (("clip", privacy.clip), ("step size", used.step_size))
    measured = tuple(name for name, value in missing if value is None)
    return Spent(epsilon, used.delta, used.noise, used.clip, used.steps, measured)


def descent_of(training_loss: float, step_size: float, steps: int) -> Descent:
    """A private training in the words of an ordinary one."""
    return Descent(training_loss, steps, step_size, "steps", None, 0, (HistoryPoint(steps, training_loss),))


def noise_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least σ (to a hundredth of ε) with which so many steps stay below ε, by Opacus' Rényi accountant."""
    require_opacus()
    find = import_module("opacus.accountants.utils").get_noise_multiplier
    try:
        with warnings.catch_warnings():  # at the edge of its Rényi orders the bound is loose, and still a bound
            warnings.simplefilter("ignore", UserWarning)
            return float(
                find(
                    target_epsilon=epsilon,
                    target_delta=delta,
                    sample_rate=rate,
                    steps=steps,
                    accountant="rdp",
                    epsilon_tolerance=epsilon / 100,
                )
            )
    except ValueError:
        raise UsageError(
            f"expected an epsilon that some noise reaches in {steps:,} steps at delta {delta:g}, found {epsilon:g}; "
            "give a larger one or fewer --private-steps"
        ) from None


def median_gradient_norm(model: nn.Module, inputs: Tensor, targets: Float[Tensor, "n k"], loss: LossName) -> float:
    """Of the samples' own gradients at the start."""
    iterates = ModuleIterates(model, inputs, targets, loss_named(loss), DescentRecipe())
    norms = []
    for sample in range(len(inputs)):
        iterates.differentiate(torch.tensor([sample]))
        norms.append(math.sqrt(sum(float(part.double().square().sum()) for part in iterates.gradient.values())))
    median = float(torch.tensor(norms, dtype=torch.float64).median())
    if not 0 < median < math.inf:
        raise UsageError(f"expected gradients at the start to measure a clip from, found {median:g}; give --clip")
    return median
