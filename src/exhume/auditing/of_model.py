"""Audits from Python: a module that is at hand, or weights over known features."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.auditing.attempts import Watch
from exhume.auditing.audit import Audit, AuditSettings, Question
from exhume.auditing.module_target import target_of_module
from exhume.auditing.records import Control, records_of_rows
from exhume.auditing.run import run_audit
from exhume.auditing.target import target_of_rows
from exhume.errors import UsageError
from exhume.experiments.truth import Truth
from exhume.features.rows import HeldRows
from exhume.observing.beside import Beside
from exhume.observing.of_module import Start, as_image, default_input_shape
from exhume.recipe import Recipe
from exhume.report.recipes import STATIONARY
from exhume.report.subject import Artefact
from exhume.torch_values import parse_device
from exhume.units import bytes_of, seconds_of


def audit(
    model: nn.Module,
    *,
    head: str | None = None,
    initial: Start = None,
    optimiser: Mapping[str, Any] | None = None,
    average: Mapping[str, Tensor] | None = None,
    truth: Tensor | None = None,
    labels: Tensor | None = None,
    control: Tensor | None = None,
    control_labels: Tensor | None = None,
    input_shape: tuple[int, ...] | None = None,
    norm: float | None = None,
    samples: int | None = None,
    budget: str | float | None = None,
    memory: str | int | None = None,
    device: torch.device | str = "cpu",
    budget_seconds: float = 600.0,
    memory_bytes: int | None = None,
    what_if: Sequence[str] = (),
    recipe: Sequence[str] = (),
    training: Recipe | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> Audit:
    """What the weights of this module give away of its training data.

    `head` is the name of the linear layer to attack, the last one that is called if None. `initial` is the state dict
    before training, "zero" for a head that started at zero, or None where nobody knows. `optimiser` is the state dict
    of the optimiser and `average` that of a moving average of the model, where both would be published too. `truth` are
    the training inputs, as the model saw them, to count what came back; `control` are others, that it was not trained
    on. The attack sees neither. `norm` is the norm of every training row and `samples` is n, if an attacker would know
    them: they are never taken from `truth`. `what_if` names defences to audit again ("int8", "prune50", "noise", "dp"),
    `recipe` says in words how the model was trained ("sgd", "adam", "augmentation", ..., and "stationary" where L2 in
    the loss brought the weights to rest, which are then attacked themselves), `training` in numbers, so
    that the training can be replayed. `budget` is in seconds or like "10m",
    `memory` in bytes or like "8G"; `budget_seconds` and `memory_bytes` are the same as numbers.
    """
    records = None if truth is None else records_of_rows(truth, labels)
    image_shape = None if records is None else records.image_shape
    if input_shape is None:
        input_shape = default_input_shape(model) if truth is None else tuple(truth.shape[1:])
    target = target_of_module(
        model,
        head=head,
        input_shape=input_shape,
        initial=initial,
        norm=norm,
        image_shape=image_shape or as_image(input_shape),
        beside=Beside(optimiser, average),
        training=training,
        stationary=STATIONARY in recipe,
    )
    name = type(model).__name__
    artefact = Artefact(f"{name} in memory", state_digest(model.state_dict()), None, "state dict")
    command = f"exhume.audit(model, head={target.head_name!r}, ...)"
    seconds, most_bytes = seconds_of(budget, budget_seconds), bytes_of(memory, memory_bytes)
    device = parse_device(str(device))
    settings = AuditSettings(seconds, most_bytes, samples, tuple(what_if), tuple(recipe), seed, device)
    against = _control(records, control, control_labels)
    return run_audit(Question(target, artefact, name, records, against, [command]), settings, watch)


def audit_features(
    rows: Float[Tensor, "p d"],
    weights: Tensor,
    activation: str,
    *,
    bias: Float[Tensor, " p"] | None = None,
    initial: Tensor | Literal["zero"] | None = "zero",
    truth: Tensor | None = None,
    labels: Tensor | None = None,
    control: Tensor | None = None,
    control_labels: Tensor | None = None,
    norm: float | None = None,
    samples: int | None = None,
    budget: str | float | None = None,
    memory: str | int | None = None,
    device: torch.device | str = "cpu",
    budget_seconds: float = 600.0,
    memory_bytes: int | None = None,
    what_if: Sequence[str] = (),
    recipe: Sequence[str] = (),
    seed: int = 0,
    watch: Watch | None = None,
) -> Audit:
    """The same for weights θ of a model θ·φ(Vx + b) whose rows V and activation are known."""
    records = None if truth is None else records_of_rows(truth, labels)
    target = target_of_rows(
        HeldRows(rows),
        weights,
        activation=activation,
        bias=bias,
        initial=initial,
        norm=norm,
        image_shape=None if records is None else records.image_shape,
    )
    name, command = "weights over known features", f"exhume.audit_features(V, weights, {activation!r}, ...)"
    artefact = Artefact("weights in memory", state_digest({"weights": weights}), None, "tensor")
    seconds, most_bytes = seconds_of(budget, budget_seconds), bytes_of(memory, memory_bytes)
    device = parse_device(str(device))
    settings = AuditSettings(seconds, most_bytes, samples, tuple(what_if), tuple(recipe), seed, device)
    against = _control(records, control, control_labels)
    return run_audit(Question(target, artefact, name, records, against, [command]), settings, watch)


def _control(truth: Truth | None, inputs: Tensor | None, labels: Tensor | None) -> Control | None:
    if inputs is None:
        return None
    if truth is None:
        raise UsageError("expected truth with control, found none to compare it with")
    if inputs.ndim < 2 or len(inputs) == 0 or not inputs.is_floating_point():
        raise UsageError(f"expected control rows in floating point, found {inputs.dtype} {list(inputs.shape)}")
    found = Control(inputs.detach().flatten(start_dim=1).float(), None if labels is None else labels.flatten().float())
    return found.first(len(truth.inputs))


def state_digest(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
