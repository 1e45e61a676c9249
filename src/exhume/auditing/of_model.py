"""Audits from Python: a module that is at hand, or weights over known features.

`options` are those of `exhume audit` that need no file, by their names (`requests/audit.py: AuditOptions`): `samples`,
`budget`, `memory`, `what_if`, `recipe`, `progress`, `seed`; and for records that are named, `label`, `scaling`,
`classes`, ...
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.auditing.attempts import Watch
from exhume.auditing.audit import Audit, AuditSettings, Question
from exhume.auditing.drawn_start import drawn, found_seed, note_on_seed
from exhume.auditing.module_target import target_of_module
from exhume.auditing.named_records import further_control, named_control, named_truth
from exhume.auditing.progress_folder import ProgressFolder
from exhume.auditing.records import Control, records_of_rows
from exhume.auditing.run import run_audit
from exhume.auditing.target import oriented, target_of_rows
from exhume.auditing.two_versions import OF_NETWORKS, target_of_versions
from exhume.errors import UsageError
from exhume.experiments.truth import Truth
from exhume.features.rows import HeldRows
from exhume.observing.beside import Beside
from exhume.observing.of_module import Start, as_image, default_input_shape
from exhume.raw_bytes import raw_bytes
from exhume.recipe import Recipe
from exhume.report.recipes import STATIONARY
from exhume.report.subject import Artefact
from exhume.requests.audit import AuditOptions
from exhume.torch_values import parse_device

OTHER_NAMES = {"budget_seconds": "budget", "memory_bytes": "memory"}
"""What two options were called where they are numbers; they may still be."""
Records = Tensor | str | Path | None
"""Inputs as the model saw them, or the name of a file, a folder of images or a data set."""


def audit(
    model: nn.Module,
    *,
    head: str | None = None,
    initial: Start = None,
    initial_seed: int | None = None,
    initial_seed_search: int | None = None,
    factory: Callable[[], nn.Module] | None = None,
    against: Mapping[str, Tensor] | None = None,
    optimiser: Mapping[str, Any] | None = None,
    average: Mapping[str, Tensor] | None = None,
    truth: Records = None,
    labels: Tensor | None = None,
    control: Records = None,
    control_labels: Tensor | None = None,
    input_shape: tuple[int, ...] | None = None,
    norm: float | None = None,
    device: torch.device | str = "cpu",
    training: Recipe | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Audit:
    """What the weights of this module give away of its training data.

    `head` is the name of the linear layer to attack, the last one that is called if None. `initial` is the state dict
    before training, "zero" for a head that started at zero, or None where nobody knows. `initial_seed` draws it again:
    torch.manual_seed(initial_seed), then `factory()`, which builds the module; `initial_seed_search` tries 0 to one
    less. `against` is the state dict of an earlier released version: what was trained on between the two is looked for.
    `optimiser` is the state dict of the optimiser and `average` that of a moving average of the model, where both would
    be published too. `truth` are the training inputs, as the model saw them, to count what came back; `control` are
    others, that it was not trained on. Both may be named, as on the command line. The attack sees neither. `norm` is
    the norm of every training row and the option `samples` is n, if an attacker would know them: they are never taken
    from `truth`. `training` says in numbers how the model was trained, so that the training can be replayed. The option
    `recipe` says it in words ("sgd", "adam", "augmentation", ..., and "stationary" where L2 in the loss brought the
    weights to rest, which are then attacked themselves), `what_if` names defences to audit again ("int8",
    "prune50", "noise", "dp"), `budget` is in seconds or like "10m", `memory` in bytes or like "8G". With `progress`, a
    folder, an audit that was stopped goes on from it.
    """
    asked = _asked(options)
    known, note = _start_of(model, initial, initial_seed, initial_seed_search, factory, against)
    held = _Held.of(asked, truth, labels, control, control_labels, as_image(input_shape))
    shape = input_shape or _input_shape(model, truth, held.truth)
    target = target_of_module(
        model,
        head=head,
        input_shape=shape,
        initial=known,
        norm=norm,
        image_shape=held.image_shape or as_image(shape),
        beside=Beside(optimiser, average),
        training=training,
        stationary=STATIONARY in asked.recipes,
    )
    if note is not None:
        target = replace(target, notes=(note, *target.notes))
    name = type(model).__name__
    artefact = Artefact(f"{name} in memory", state_digest(model.state_dict()), None, "state dict")
    command = f"exhume.audit(model, head={target.head_name!r}, ...)"
    question = Question(target, artefact, name, held.truth, held.control, [command])
    settings = AuditSettings(asked, parse_device(str(device)))
    given = {"model": model.state_dict(), "initial": known, "optimiser": optimiser, "average": average}
    return _run(question, settings, watch, given | {"head": head, "norm": norm, "shape": shape, "training": training})


def audit_features(
    rows: Float[Tensor, "p d"],
    weights: Tensor,
    activation: str,
    *,
    bias: Float[Tensor, " p"] | None = None,
    initial: Tensor | Literal["zero"] | None = "zero",
    against: Tensor | None = None,
    public: Float[Tensor, "N d"] | None = None,
    truth: Records = None,
    labels: Tensor | None = None,
    control: Records = None,
    control_labels: Tensor | None = None,
    norm: float | None = None,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    **options: Any,
) -> Audit:
    """The same for weights θ of a model θ·φ(Vx + b) whose rows V and activation are known.

    `against` is θ of an earlier released version, and `public` are records of the same kind that anybody may have: what
    was deleted or added between the two versions is looked for.
    """
    asked = _asked(options)
    _check_versions(asked, initial, against, public)
    held = _Held.of(asked, truth, labels, control, control_labels)
    target = target_of_rows(
        HeldRows(rows),
        weights,
        activation=activation,
        bias=bias,
        initial=initial,
        norm=norm,
        image_shape=held.image_shape,
    )
    if against is not None and public is not None:
        target = target_of_versions(target, oriented(against, len(rows), "the older weights"), public)
    name, command = "weights over known features", f"exhume.audit_features(V, weights, {activation!r}, ...)"
    artefact = Artefact("weights in memory", state_digest({"weights": weights}), None, "tensor")
    question = Question(target, artefact, name, held.truth, held.control, [command])
    settings = AuditSettings(asked, parse_device(str(device)))
    given = {"rows": rows, "weights": weights, "bias": bias, "initial": initial, "against": against, "public": public}
    return _run(question, settings, watch, given | {"activation": activation, "norm": norm})


def _asked(options: Mapping[str, Any]) -> AuditOptions:
    """Those that were given, by the names that the command line has for them too."""
    given = {name: value for name, value in options.items() if not (value is None or value in ((), []))}
    older = {OTHER_NAMES[name]: given.pop(name) for name in OTHER_NAMES if name in given}
    return AuditOptions.from_config(older | given)


def _run(question: Question, settings: AuditSettings, watch: Watch | None, given: Mapping[str, object]) -> Audit:
    """`given` is what an audit that goes on from a folder has to have in common with the one that was stopped."""
    if settings.options.progress is None:
        return run_audit(question, settings, watch)
    with ProgressFolder.of_request(settings.options, {"given": digest_of(given)}) as progress:
        return run_audit(question, settings, watch, progress)


def _start_of(
    model: nn.Module,
    initial: Start,
    seed: int | None,
    seeds: int | None,
    factory: Callable[[], nn.Module] | None,
    against: Mapping[str, Tensor] | None,
) -> tuple[Start, str | None]:
    """The weights before training, however they are known, and what is to be said of them."""
    ways = {"initial": initial, "initial_seed": seed, "initial_seed_search": seeds, "against": against}
    several = [name for name, way in ways.items() if way is not None]
    if len(several) > 1:
        raise UsageError(f"expected one of {', '.join(ways)}, found {' and '.join(several)}")
    if against is not None:
        return against, OF_NETWORKS.format(old="the older version", new="this one")
    if seed is None and seeds is None:
        return initial, None
    if factory is None:
        raise UsageError(f"expected factory with {several[0]}, the function that builds the module, found none")

    def build(seed: int) -> nn.Module:
        return drawn(factory, seed)

    if seed is not None:
        return build(seed).state_dict(), None
    assert seeds is not None
    found = found_seed(build, model.state_dict(), seeds)
    return None if found is None else build(found).state_dict(), note_on_seed(found, seeds)


def _check_versions(asked: AuditOptions, initial: object, against: Tensor | None, public: Tensor | None) -> None:
    if against is None and public is None:
        return
    if against is None or public is None:
        raise UsageError("expected against and public together, records that tell how features vary, found one of them")
    if initial != "zero":
        raise UsageError("expected against or initial, found both; give one of them")
    if asked.what_if is not None:
        raise UsageError(f"expected no what_if with two versions of a ridge model, found {asked.what_if!r}")


def _input_shape(model: nn.Module, given: Records, truth: Truth | None) -> tuple[int, ...]:
    """As inputs in memory are; of named ones, images may be read as flat rows."""
    if isinstance(given, Tensor):
        return tuple(given.shape[1:])
    try:
        return default_input_shape(model)
    except UsageError:
        if truth is None:
            raise
        return truth.image_shape or (truth.inputs.shape[1],)


@dataclass(frozen=True, eq=False)
class _Held:
    """Records that the result is held against."""

    truth: Truth | None
    control: Control | None

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        return None if self.truth is None else self.truth.image_shape

    @classmethod
    def of(
        cls,
        asked: AuditOptions,
        truth: Records,
        labels: Tensor | None,
        control: Records,
        control_labels: Tensor | None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> "_Held":
        for name, records, given in (("truth", truth, labels), ("control", control, control_labels)):
            if given is not None and not isinstance(records, Tensor):
                raise UsageError(f"expected {name} as a tensor with labels as a tensor, found {records!r}")
        if truth is None:
            if control is not None:
                raise UsageError("expected truth with control, found none to compare it with")
            return cls(None, None)
        if isinstance(truth, Tensor):
            found = records_of_rows(truth, labels)
        else:
            found = named_truth(str(truth), asked, image_shape)
        if isinstance(control, Tensor):
            return cls(found, _control_of_rows(control, control_labels).first(len(found.inputs)))
        if control is not None:
            return cls(found, named_control(str(control), asked, found))
        return cls(found, None if isinstance(truth, Tensor) else further_control(str(truth), asked, found))


def _control_of_rows(inputs: Tensor, labels: Tensor | None) -> Control:
    if inputs.ndim < 2 or len(inputs) == 0 or not inputs.is_floating_point():
        raise UsageError(f"expected control rows in floating point, found {inputs.dtype} {list(inputs.shape)}")
    return Control(inputs.detach().flatten(start_dim=1).float(), None if labels is None else labels.flatten().float())


def state_digest(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def digest_of(given: object) -> str:
    """Of tensors by their numbers, of everything else by how it is written."""
    digest = hashlib.sha256()
    for name, value in _leaves(given):
        digest.update(f"{name} {state_digest({name: value}) if isinstance(value, Tensor) else value!r}".encode())
    return digest.hexdigest()


def _leaves(given: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(given, Mapping):
        for key in given:
            yield from _leaves(given[key], f"{name}.{key}")
    else:
        yield name, given
