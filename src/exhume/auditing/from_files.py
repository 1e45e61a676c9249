"""From what a user names on the command line to a question that can be audited: files, code, data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from exhume.auditing.audit import Audit, Question
from exhume.auditing.drawn_start import drawn, found_seed, note_on_seed
from exhume.auditing.merged_adapter import MergedAdapter, merge_adapter, target_of_adapter
from exhume.auditing.module_target import target_of_module
from exhume.auditing.named_records import further_control, named_control, named_truth, table_options
from exhume.auditing.records import Control, is_a_file, read_records
from exhume.auditing.target import AuditTarget, oriented, target_of_rows
from exhume.auditing.two_versions import OF_NETWORKS, target_of_versions
from exhume.auditing.weights_folder import tensors_in
from exhume.auditing.without_code import ASSUMED, DRAWN, ReadNetwork, chain_in, notes_of, read_network, start_of
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.truth import Truth
from exhume.features.rows import MappedRows
from exhume.files import replacing, write_json
from exhume.formats.adapter import is_adapter
from exhume.formats.linear_head import Scaler
from exhume.networks.loading import load_factory, load_state
from exhume.observing.of_module import Start, as_image, default_input_shape
from exhume.observing.weights_file import WeightsFile, read_weights
from exhume.recipe import read_recipe
from exhume.reconstruction import save_reconstruction
from exhume.report.page import write_page
from exhume.report.recipes import STATIONARY
from exhume.report.subject import Artefact
from exhume.report.tables import write_recovered
from exhume.requests.audit import FLAT, AuditRequest
from exhume.requests.command_line import shown_line

BIAS_NAMES = ("b", "bias")
SCALED = (
    "The file scales its inputs first: the records that were given went through its scaler. If they were scaled "
    "before, give --scaling none."
)
AFTER_SCALING = "The file scales its inputs first: records are compared as they are after that."


def read_question(request: AuditRequest, watch: Callable[[int], None] = lambda seed: None) -> Question:
    """Reads everything. A factory of the user's own runs here, because the user named it.

    `watch` is told each seed that is tried, where the start is searched for.
    """
    request.check()
    merged = merge_adapter(request.weights, request.initial) if is_adapter(request.weights) else None
    if request.public is not None and request.features is None:
        raise UsageError(
            "expected --features or two versions of a linear model with --public, found another model; leave it out"
        )
    without_code = request.model is None and request.features is None
    network = None
    if without_code:
        network = read_network(request.weights) if merged is None else chain_in(merged.after, in_order=False)
    truth, control = _records(request, None if network is None else network.scaler)
    file = network.file if network is not None else tensors_in(request.weights) if merged is None else merged.after
    note, known = None, request
    if request.against is not None and request.features is None:
        known = request.model_copy(update={"initial": str(request.against)})
        note = OF_NETWORKS.format(old=request.against.name, new=request.weights.name)
    if request.initial_seed_search is not None:
        tried = request.initial_seed_search
        draw = partial(_build, str(request.model)) if network is None else network.drawn
        seed = found_seed(draw, file.tensors, tried, watch)
        known = request.model_copy(update={"initial_seed": seed, "initial_seed_search": None})
        note = note_on_seed(seed, tried)
    if network is not None:
        target = _chain_target(known, network, truth, merged)
    elif request.model is None:
        target = _rows_target(known, file, truth)
    else:
        start = _start(known) if merged is None else merged.before
        target = _module_target(known, _build(str(request.model), None), start, file, truth, merged)
    if network is not None and network.scaler is not None:
        through = request.scaling is None and request.truth is not None and is_a_file(request.truth)
        target = replace(target, notes=(*target.notes, SCALED if through else AFTER_SCALING))
    if note is not None:
        target = replace(target, notes=(note, *target.notes))
    artefact = Artefact(file.path.name, file.sha256(), file.size, file.kind)
    line = shown_line(request.model_copy(update={"progress": None}))  # which changes nothing of the result
    return Question(target, artefact, file.path.name, truth, control, [line])


def write_audit(audit: Audit, out: Path, reveal: bool) -> Path:
    """A new folder with the page, its JSON and the summary; the recovered rows themselves only with `reveal`."""
    with replacing(out, folder=True) as folder:
        write_page(audit.content(reveal), folder / "report.html")
        write_json(folder / "summary.json", audit.summary | {"report": "report.html"})
        if reveal and audit.subject.found is not None:
            save_reconstruction(audit.subject.found, folder / "reconstruction.safetensors")
        if reveal:
            write_recovered(audit.subject, audit.evidence, folder / "recovered.csv")
    return out / "report.html"


def _records(request: AuditRequest, scaler: Scaler | None) -> tuple[Truth | None, Control | None]:
    if request.truth is None:
        return None, None
    truth = named_truth(request.truth, request, as_image(request.input_shape()), scaler)
    if request.control is None:
        return truth, further_control(request.truth, request, truth)
    return truth, named_control(request.control, request, truth, scaler)


def _chain_target(
    request: AuditRequest, network: ReadNetwork, truth: Truth | None, merged: MergedAdapter | None
) -> AuditTarget:
    """Without code: the layers in their order, with the activation that was given, found in the file, or assumed."""
    model = network.module(request.activation or network.activation or ASSUMED)
    start: Start = "zero" if request.initial == "zero" else None
    if merged is not None:
        start = merged.before
    elif request.initial not in (None, "zero"):
        start = start_of(network, Path(str(request.initial)))
    if request.initial_seed is not None:
        start = network.drawn(request.initial_seed).state_dict()
    notes = notes_of(network, request.activation, truth, start if isinstance(start, Mapping) else None)
    if request.initial_seed is not None:
        notes = (*notes, DRAWN)
    _check_width(truth, network.file.tensors[f"{network.order[0]}.weight"].shape[1])
    target = _module_target(request, model, start, network.file, truth, merged)
    return replace(target, notes=(*notes, *target.notes))


def _check_width(truth: Truth | None, width: int) -> None:
    """A forgotten label is an input too many, and a table knows its columns."""
    if truth is None or truth.inputs.shape[1] == width:
        return
    found, table = truth.inputs.shape[1], truth.table
    way = "give the records as the network reads them"
    if table is not None:
        way = "say with --columns FILE.json what its columns are"
        if any(column.width == found - width for column in table.columns):
            way = "which one is the label? give --label NAME"
    raise UsageError(f"expected {width} columns as the network reads, found {found}: {way}")


def _module_target(
    request: AuditRequest,
    model: nn.Module,
    start: Start,
    file: WeightsFile,
    truth: Truth | None,
    merged: MergedAdapter | None,
) -> AuditTarget:
    load_state(model, file.tensors, str(request.weights))
    _require_change(start, file)
    image_shape = None if truth is None else truth.image_shape
    shape = request.input_shape()
    if shape == FLAT:
        shape = _flat(model, truth)
    image_shape = image_shape or as_image(shape)
    if shape is None and truth is not None and truth.table is not None:
        _check_width(truth, math.prod(default_input_shape(model)))
    shapes = _image_or_flat(shape) if shape is not None else _shapes(model, truth)
    recipe = None if request.recipe_file is None else read_recipe(request.recipe_file)
    for tried in shapes:
        try:
            found = target_of_module(
                model,
                head=request.head,
                input_shape=tried,
                initial=start,
                norm=request.row_norm,
                image_shape=image_shape,
                beside=file.beside,
                training=recipe,
                stationary=STATIONARY in request.recipes,
            )
            return found if merged is None else target_of_adapter(found, merged)
        except UsageError:
            if tried == shapes[-1]:
                raise
    raise AssertionError("there is at least one shape to try")


def _require_change(start: Start, file: WeightsFile) -> None:
    if not isinstance(start, Mapping) or not set(start) <= set(file.tensors):
        return
    if all(torch.equal(value, file.tensors[name]) for name, value in start.items()):
        raise ExhumeError(
            f"expected a start that differs from {file.path}, found the same weights twice: nothing was trained "
            "between them; give the weights before training, or an earlier checkpoint"
        )


def _shapes(model: nn.Module, truth: Truth | None) -> list[tuple[int, ...]]:
    """The shapes that the model may take its inputs in: as the images are, or flat."""
    if truth is None:
        return [default_input_shape(model)]
    return _image_or_flat(truth.image_shape or (truth.inputs.shape[1],))


def _image_or_flat(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """An image may be what the model takes, or only what one of its flat rows shows."""
    return list(dict.fromkeys([shape, (math.prod(shape),)]))


def _flat(model: nn.Module, truth: Truth | None) -> tuple[int, ...]:
    return default_input_shape(model) if truth is None else (truth.inputs.shape[1],)


def _start(request: AuditRequest) -> Start:
    match request.initial:
        case "zero":
            return "zero"
        case str() as path:
            return tensors_in(Path(path)).tensors
    if request.initial_seed is not None:
        return _build(str(request.model), request.initial_seed).state_dict()
    return None


def _build(spec: str, seed: int | None) -> nn.Module:
    if seed is not None:
        return drawn(partial(load_factory, spec), seed)
    with torch.random.fork_rng(devices=[]):
        return load_factory(spec)


def _rows_target(request: AuditRequest, file: WeightsFile, truth: Truth | None) -> AuditTarget:
    assert request.features is not None
    assert request.activation is not None
    rows = MappedRows.open(request.features)
    beside = read_weights(request.features).tensors
    bias = next((beside[name] for name in BIAS_NAMES if name in beside), None)
    name = _head_name(file, request.head, rows.p)
    initial: Tensor | Literal["zero"] = "zero"
    if request.initial not in (None, "zero"):
        initial = _tensor(read_weights(Path(str(request.initial))), name)
    target = target_of_rows(
        rows,
        file.tensors[name],
        activation=request.activation,
        bias=bias,
        initial=initial,
        norm=request.row_norm,
        image_shape=as_image(request.input_shape()) if truth is None else truth.image_shape,
        head_name=name,
        tensors=file.tensors,
    )
    if request.against is None:
        return target
    old = oriented(_tensor(read_weights(request.against), name), rows.p, f"the older {name}")
    return target_of_versions(target, old, _public(request).inputs)


def _public(request: AuditRequest) -> Truth:
    assert request.public is not None
    if not is_a_file(request.public):
        raise UsageError(f"expected --public as a file of rows, found {request.public!r}")
    return read_records(Path(request.public), None, table_options(request))


def _head_name(file: WeightsFile, head: str | None, p: int) -> str:
    """The tensor with the weights: as named, or the only one that has one number a feature."""
    if head is not None:
        return head if head in file.tensors else _named(file, f"{head}.weight", head)
    fitting = [name for name, tensor in file.tensors.items() if tensor.ndim in (1, 2) and p in tensor.shape]
    if len(fitting) != 1:
        some = ", ".join(map(repr, fitting[:5])) or "none"
        raise UsageError(
            f"expected one tensor in {file.path} with a weight for each of {p} features, found {some}; give --head"
        )
    return fitting[0]


def _named(file: WeightsFile, name: str, asked: str) -> str:
    if name not in file.tensors:
        some = ", ".join(map(repr, list(file.tensors)[:5]))
        raise UsageError(f"expected a tensor {asked!r} or {name!r} in {file.path}, found {some}")
    return name


def _tensor(file: WeightsFile, name: str) -> Tensor:
    if name not in file.tensors:
        raise ExhumeError(f"expected the initial {name!r} in {file.path}, found no such tensor")
    return file.tensors[name]
