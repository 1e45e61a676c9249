"""Records behind a scaler, turned back: a pipeline keeps what it takes to undo its own scaling."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from exhume.formats.contents import Contents, StoredObject
from exhume.scanning.finding import StoredRows

Undo = Callable[[np.ndarray], np.ndarray]
OWN_UNITS = "in their own units: the scaler before it is in the file as well"
STATISTICS = {
    "StandardScaler": ("mean_", "scale_"),
    "RobustScaler": ("center_", "scale_"),
    "MinMaxScaler": ("min_", "scale_"),
}


def in_own_units(rows: StoredRows, model: StoredObject, contents: Contents) -> StoredRows | None:
    """The rows as they were before the scalers of the pipeline; None where nothing, or another step, is before it."""
    undoing = _scalers_before(model, contents)
    if not undoing:
        return None

    def read() -> np.ndarray:
        values = rows.read()
        for undo in reversed(undoing):
            values = undo(values)
        return values

    return replace(rows, read=read)


def before_scaler(rows: StoredRows, reads: Iterable[str], contents: Contents) -> StoredRows | None:
    """ONNX: the rows as they were before a Scaler of the inputs, y = (x - offset) * scale, whose outputs are read."""
    taken, inputs = set(reads), contents.values["inputs"][:1]
    before = [
        node
        for node in contents.objects_of("Scaler")
        if taken & set(node.members["outputs"]) and node.members["inputs"][:1] == inputs
    ]
    offset, scale = (before[0].array(name) if len(before) == 1 else None for name in ("offset", "scale"))
    if offset is None or scale is None:
        return None
    shift, factor = np.asarray(offset.read(), np.float64), np.asarray(scale.read(), np.float64)
    if not {shift.size, factor.size} <= {1, rows.columns} or not factor.all():
        return None
    return replace(rows, read=lambda: np.asarray(rows.read(), np.float64) / factor + shift)


def _scalers_before(model: StoredObject, contents: Contents) -> list[Undo]:
    for pipeline in contents.objects_of("Pipeline"):
        steps = pipeline.members.get("steps")
        parts = [step[1] if isinstance(step, list) and len(step) == 2 else None for step in steps or ()]
        if any(part is model for part in parts):
            before = parts[: next(at for at, part in enumerate(parts) if part is model)]
            undoing = [_undo(part) for part in before]
            return [undo for undo in undoing if undo is not None] if None not in undoing else []
    return []


def _undo(step: object) -> Undo | None:
    if not isinstance(step, StoredObject) or step.class_name not in STATISTICS:
        return None
    first, second = (step.array(name) for name in STATISTICS[step.class_name])
    if first is None or second is None:
        return None
    shift, scale = np.asarray(first.read()), np.asarray(second.read())
    if step.class_name == "MinMaxScaler":  # x * scale_ + min_
        return lambda values: (values - shift) / scale
    return lambda values: values * scale + shift
