"""Training any module with differential privacy, with Opacus for per-sample gradients, clipping and noise.

The steps are those of `exhume.defences.private`, which has the same for a linear head on fixed features.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume import seeds
from exhume.defences.private import PrivateRecipe, epsilon, require_opacus
from exhume.errors import ExhumeError, UsageError
from exhume.networks.loading import check_inputs, prepare_for_attack
from exhume_papers.victims.curvature import module_curvature
from exhume_papers.victims.losses import Loss, LossName, loss_named

Progress = Callable[[int, float], None]
"""Told the number of steps and the loss there."""


@dataclass(frozen=True, eq=False, repr=False)
class PrivateModule:
    """The trained module (a copy; the given one is untouched), and what its privacy has come to."""

    model: nn.Module
    initial: dict[str, Tensor]
    training_loss: float
    step_size: float
    epsilon: float
    delta: float
    note: str | None
    """What was done about dropout and batch norm, if there is any."""


def train_private_module(
    model: nn.Module,
    inputs: Float[Tensor, "n d"],
    targets: Float[Tensor, "n k"],
    loss: LossName,
    recipe: PrivateRecipe,
    image_shape: tuple[int, ...] | None = None,
    progress: Progress | None = None,
) -> PrivateModule:
    """Trains a copy of the module on rows, or on rows brought into `image_shape` if the module wants images.

    `progress` is told the loss of each step's batch.
    """
    opacus = require_opacus()
    check_inputs(inputs)
    rate = recipe.rate(len(inputs))
    shaped = inputs if image_shape is None else inputs.reshape(len(inputs), *image_shape)
    trained = copy.deepcopy(model)
    _check_layers(trained, opacus)
    note = prepare_for_attack(trained)
    initial = {name: value.clone() for name, value in trained.state_dict().items()}
    named = loss_named(loss)
    step_size = recipe.step_size or _measured_step(trained, shaped, named, recipe)
    _descend(trained, shaped, targets, named, recipe, step_size, progress)
    with torch.no_grad():
        reached = float(named.value(trained(shaped), targets))
    if not math.isfinite(reached):
        raise ExhumeError(f"expected a finite loss, found {reached} at step size {step_size:g}; give a smaller one")
    return PrivateModule(trained, initial, reached, step_size, epsilon(recipe, rate), recipe.delta, note)


def _descend(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: Loss,
    recipe: PrivateRecipe,
    step_size: float,
    progress: Progress | None,
) -> None:
    """Moves the module's parameters in place."""
    optimizers, per_sample = import_module("opacus.optimizers"), import_module("opacus.grad_sample")
    rate, stream = recipe.rate(len(inputs)), seeds.generator(recipe.seed, "noise", inputs.device)
    watched = per_sample.GradSampleModule(model, loss_reduction="sum")
    for layer in model.modules():  # Opacus looks at layers in training mode only; without weights they stay as they are
        layer.training = next(layer.parameters(recurse=False), None) is not None
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = optimizers.DPOptimizer(
        torch.optim.SGD(trainable, lr=step_size, momentum=recipe.momentum),
        noise_multiplier=recipe.noise,
        max_grad_norm=recipe.clip,
        expected_batch_size=rate * len(inputs),
        generator=stream,
    )
    for step, batch in enumerate(_poisson_batches(len(inputs), rate, recipe.steps, stream)):
        optimizer.zero_grad(set_to_none=True)
        # an empty batch is still a step of noise: one sample stands in for it, with a gradient of zero
        chosen = batch if len(batch) else torch.zeros(1, dtype=torch.int64)
        outputs = watched(inputs[chosen])
        errors = loss.gradient(outputs.detach(), targets[chosen]) * len(batch)
        with warnings.catch_warnings():  # torch wonders at a first layer whose input needs no gradient
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            outputs.backward(errors)
        optimizer.step()
        if progress is not None:
            progress(step + 1, float(loss.value(outputs.detach(), targets[chosen])))
    watched.remove_hooks()
    model.eval()
    for parameter in model.parameters():  # a trained module holds weights, and no gradients of samples
        for name in ("grad_sample", "summed_grad"):
            if hasattr(parameter, name):
                delattr(parameter, name)
        parameter.grad = None


def _poisson_batches(samples: int, rate: float, steps: int, stream: torch.Generator) -> Iterator[Tensor]:
    for _ in range(steps):
        drawn = torch.rand(samples, generator=stream, device=stream.device) < rate
        yield drawn.nonzero().flatten()


def _measured_step(model: nn.Module, inputs: Tensor, loss: Loss, recipe: PrivateRecipe) -> float:
    curvature = module_curvature(model, inputs, loss)
    if not curvature > 0:
        raise ExhumeError("expected a loss that changes with the weights, found no curvature; give a step size")
    return (1 - recipe.momentum) / curvature


def _check_layers(model: nn.Module, opacus: Any) -> None:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError("expected a model with parameters to train, found none that require a gradient")
    model.train()  # Opacus refuses any other
    problems = import_module("opacus.validators").ModuleValidator.validate(model, strict=False)
    if problems:
        reason = " ".join(str(problems[0]).split())
        raise UsageError(
            f"expected layers whose gradients can be told sample by sample, found one that Opacus "
            f"{opacus.__version__} refuses: {reason}"
        )
