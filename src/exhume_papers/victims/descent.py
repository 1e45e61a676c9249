"""Training any module: residual networks, Vision Transformers, and models of users.

The module is trained in evaluation mode (dropout off, batch norm at its running statistics, which stay): the loss is
then a function of the weights alone, and the features that an attack sees are the ones that were trained. Only
parameters that require a gradient move, so a frozen extractor with a linear probe is trained by freezing it.
"""

import copy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.networks.loading import check_inputs, prepare_for_attack
from exhume_papers.victims.curvature import module_curvature
from exhume_papers.victims.descent_loop import Surroundings, Tensors, descend
from exhume_papers.victims.losses import Loss, LossName, loss_named
from exhume_papers.victims.recipe import Descent, DescentRecipe

ADAM_DECAYS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModule:
    """The trained module (a copy; the given one is untouched), both ends of the way, and how it went."""

    model: nn.Module
    initial: Tensors
    state: Tensors
    descent: Descent
    note: str | None
    """What was done about dropout and batch norm, if there is any."""
    scale: float = 1.0
    """c: what weight decay left of the start, w(T) = c w(0) + gradients on the way. 1 for Adam, which mixes them up."""


def train_module(
    model: nn.Module,
    inputs: Float[Tensor, "n d"],
    targets: Float[Tensor, "n k"],
    loss: LossName,
    recipe: DescentRecipe,
    image_shape: tuple[int, ...] | None = None,
    around: Surroundings | None = None,
) -> TrainedModule:
    """Trains a copy of the module on rows, or on rows brought into `image_shape` if the module wants images."""
    check_inputs(inputs)
    around = around or Surroundings()
    trained = copy.deepcopy(model)
    note = prepare_for_attack(trained)
    shaped = inputs if image_shape is None else inputs.reshape(len(inputs), *image_shape)
    check_outputs(trained, shaped, targets)
    initial = _copied(trained.state_dict())
    named = loss_named(loss)
    iterates = ModuleIterates(trained, shaped, targets, named, recipe)
    settings = {
        **around.settings,
        "loss": loss,
        "parameters": {n: list(p.shape) for n, p in iterates.parameters.items()},
    }
    until = named.until if recipe.until is None else recipe.until
    descent = descend(iterates, recipe, until, replace(around, settings=settings))
    return TrainedModule(trained, initial, _copied(trained.state_dict()), descent, note, iterates.scale)


class ModuleIterates:
    """A trainee (see descent_loop) that moves the parameters of a module in place."""

    def __init__(self, model: nn.Module, inputs: Tensor, targets: Tensor, loss: Loss, recipe: DescentRecipe) -> None:
        self.model, self.inputs, self.targets, self._loss = model, inputs, targets, loss
        self.parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        if not self.parameters:
            raise UsageError("expected a model with parameters to train, found none that require a gradient")
        self._recipe = recipe
        self._memory: Tensors = {}
        kinds = ("first", "second") if recipe.method == "adam" else ("speed",) if recipe.momentum else ()
        for kind in kinds:
            self._memory |= {f"{kind}.{name}": torch.zeros_like(value) for name, value in self.parameters.items()}
        self._moves = 0
        self.scale, self._scale_speed = 1.0, 0.0
        self.gradient: Tensors = {}
        """What `differentiate` found last, without weight decay."""

    @property
    def samples(self) -> int:
        return len(self.inputs)

    @torch.no_grad()
    def loss(self) -> float:
        return float(self._loss.value(self.model(self.inputs), self.targets))

    def differentiate(self, batch: Int[Tensor, " b"] | None) -> float:
        inputs, targets = (self.inputs, self.targets) if batch is None else (self.inputs[batch], self.targets[batch])
        outputs = self.model(inputs)
        errors = self._loss.gradient(outputs.detach(), targets)
        found = torch.autograd.grad(outputs, list(self.parameters.values()), errors, materialize_grads=True)
        self.gradient = dict(zip(self.parameters, found, strict=True))
        return float(self._loss.value(outputs.detach(), targets))

    @torch.no_grad()
    def move(self, step_size: float) -> None:
        self._moves += 1
        along = self._along_adam if self._recipe.method == "adam" else self._along_momentum
        for name, parameter in self.parameters.items():
            gradient = self.gradient[name].add(parameter, alpha=self._recipe.weight_decay)
            parameter.sub_(along(name, gradient), alpha=step_size)
        if self._recipe.method != "adam":
            self._scale_speed = self._recipe.momentum * self._scale_speed + self._recipe.weight_decay * self.scale
            self.scale -= step_size * self._scale_speed

    def _along_momentum(self, name: str, gradient: Tensor) -> Tensor:
        if not self._recipe.momentum:
            return gradient
        return self._memory[f"speed.{name}"].mul_(self._recipe.momentum).add_(gradient)

    def _along_adam(self, name: str, gradient: Tensor) -> Tensor:
        first, second = self._memory[f"first.{name}"], self._memory[f"second.{name}"]
        first.lerp_(gradient, 1 - ADAM_DECAYS[0])
        second.mul_(ADAM_DECAYS[1]).addcmul_(gradient, gradient, value=1 - ADAM_DECAYS[1])
        mean = first / (1 - ADAM_DECAYS[0] ** self._moves)
        return mean / ((second / (1 - ADAM_DECAYS[1] ** self._moves)).sqrt() + ADAM_EPSILON)

    def curvature(self, batch: Int[Tensor, " b"] | None) -> float:
        return module_curvature(self.model, self.inputs if batch is None else self.inputs[batch], self._loss)

    def state(self) -> Tensors:
        own = {f"weight.{name}": value.detach() for name, value in self.parameters.items()}
        memory = {f"memory.{name}": value for name, value in self._memory.items()}
        scale = torch.tensor([self.scale, self._scale_speed], dtype=torch.float64)
        return {**own, **memory, "moves": torch.tensor(self._moves), "scale": scale}

    @torch.no_grad()
    def restore(self, state: Tensors) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(state[f"weight.{name}"])
        for name, value in self._memory.items():
            value.copy_(state[f"memory.{name}"])
        self._moves = int(state["moves"])
        self.scale, self._scale_speed = state["scale"].tolist()


def check_outputs(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """Runs the model once, so that what does not fit is one line and not a trace of calls."""
    try:
        with torch.no_grad():
            outputs = model(inputs)
    except Exception as problem:
        reason = " ".join(str(problem).split())
        raise UsageError(
            f"expected a model that takes inputs of shape {list(inputs.shape[1:])}, found: "
            f"{type(problem).__name__}: {reason}"
        ) from problem
    found = list(outputs.shape) if isinstance(outputs, Tensor) else f"an object of type {type(outputs).__name__}"
    if not isinstance(outputs, Tensor) or outputs.shape != targets.shape:
        raise UsageError(f"expected outputs of shape {list(targets.shape)} (samples x outputs), found {found}")
    if not outputs.is_floating_point():
        raise UsageError(f"expected outputs in floating point, found {str(outputs.dtype).removeprefix('torch.')}")


def _copied(state: dict[str, Tensor]) -> Tensors:
    return {name: value.detach().clone() for name, value in state.items()}
