"""What a model of scikit-learn keeps beside its records: the label of each, and the names of the columns."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from exhume.formats.contents import Contents, StoredArray, StoredObject
from exhume.scanning.finding import StoredRows

BY_CLASS = ("SVC", "NuSVC")
"""Their support vectors lie one class after the other."""


def with_labels_and_names(rows: StoredRows, model: StoredObject, contents: Contents) -> StoredRows:
    return replace(rows, labels=_labels(model, rows.count), names=_names(model, contents, rows.columns))


def _labels(model: StoredObject, count: int) -> Callable[[], list[Any]] | None:
    """A function that reads them; None where the model keeps none, or several of each record."""
    supports = model.array("_n_support")
    if model.class_name in BY_CLASS and supports is not None:
        return partial(_of_supports, supports, _texts_or_numbers(model, "classes_"), count)
    for name in ("_y", "y_train_", "transduction_"):
        kept = model.array(name)
        if kept is not None and kept.shape in ((count,), (count, 1)):
            return partial(_of_records, kept, model)
    return None


def _of_supports(supports: StoredArray, classes: Sequence[Any] | None, count: int) -> list[Any]:
    sizes = np.asarray(supports.read()).ravel().tolist()
    if classes is None or len(classes) != len(sizes) or sum(sizes) != count or min(sizes) < 0:
        return []
    return [label for label, size in zip(classes, sizes, strict=True) for _ in range(int(size))]


def _of_records(kept: StoredArray, model: StoredObject) -> list[Any]:
    values = np.asarray(kept.read()).ravel()
    classes = _texts_or_numbers(model, "classes_")
    if kept.name.endswith("transduction_"):
        return list(values.tolist())
    if classes is not None and values.dtype.kind in "iu":  # numbers of classes
        return [classes[at] if 0 <= at < len(classes) else "" for at in values.tolist()]
    centre, scale = (model.members.get(f"_y_train_{part}") for part in ("mean", "std"))
    if isinstance(centre, float) and isinstance(scale, float):
        values = values * scale + centre
    return list(values.tolist())


def _names(model: StoredObject, contents: Contents, columns: int) -> tuple[str, ...] | None:
    """Its own, or those of the step that its pipeline begins with: scalers leave columns where they are."""
    own = _texts_or_numbers(model, "feature_names_in_")
    for pipeline in contents.objects_of("Pipeline") if own is None else ():
        steps = pipeline.members.get("steps")
        parts = [step[1] for step in steps or () if isinstance(step, list) and len(step) == 2]
        if any(part is model for part in parts) and isinstance(parts[0], StoredObject):
            own = _texts_or_numbers(parts[0], "feature_names_in_")
    known = tuple(map(str, own or ()))
    return known if len(known) == columns == len(set(known)) else None


def _texts_or_numbers(model: StoredObject, name: str) -> list[Any] | None:
    found = model.members.get(name)
    if isinstance(found, StoredArray) and len(found.shape) == 1:
        found = found.read().tolist()
    return found if isinstance(found, list) and all(isinstance(part, str | int | float) for part in found) else None
