"""A linear model as scikit-learn keeps it, read from skops' schema or from ONNX; nothing of it is run.

| model | loss | targets |
| --- | --- | --- |
| LogisticRegression, LogisticRegressionCV | cross-entropy; logistic for two classes | classes |
| Ridge, RidgeCV | square | numbers |
| RidgeClassifier, RidgeClassifierCV | signed-square, one output per class; one for two classes | classes |
| LinearSVC | squared-hinge; the plain hinge tells too little | classes |
| SGDClassifier | that of its setting `loss`, where it is one of these | classes |

ONNX keeps what a model answers and not what it was trained with. A softmax or a logistic function at the end tells a
logistic regression; of other classifiers the loss has to be given.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError, UsageError
from exhume.formats.contents import Contents, StoredArray, StoredObject

MODELS = (
    "LogisticRegression",
    "LogisticRegressionCV",
    "Ridge",
    "RidgeCV",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "LinearSVC",
    "SGDClassifier",
)
OF_VERSIONS = ("LogisticRegression", "Ridge", "RidgeClassifier", "LinearSVC", "LinearRegression")
"""Models of which two versions can be held against each other: their penalty is the owner's, and they come to rest."""
SGD_LOSSES = {"log_loss": "logistic", "squared_hinge": "squared-hinge", "squared_error": "signed-square"}
NODES = ("LinearClassifier", "LinearRegressor")
Prepare = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class LinearHead:
    """`weight` has one row per output. `loss`: None where the file does not tell. `classes`: labels in the order of the
    outputs, None for numbers. `prepare`: what the file does to a record before the model, None for nothing."""

    weight: np.ndarray
    bias: np.ndarray | None
    loss: str | None
    classes: tuple[Any, ...] | None
    prepare: Prepare | None = None
    penalty: float | None = None
    """λ of λ|W|²/2 beside the sum of the losses, where the file tells it."""


@dataclass(frozen=True, eq=False, repr=False)
class Scaler:
    """What a file does to a record first: (x - centre) / scale."""

    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, prepare: Prepare, width: int, path: Path) -> "Scaler":
        """Scalers one after another are one."""
        try:
            start, end = (np.asarray(prepare(np.full((1, width), value)), np.float64) for value in (0.0, 1.0))
        except ValueError as problem:
            raise ExhumeError(f"expected a scaler of {width} numbers in {path}, found another one") from problem
        slope = end - start
        if slope.shape != (1, width) or not np.isfinite(slope).all() or (slope == 0).any():
            raise ExhumeError(f"expected a scaler of {width} numbers, none of them zero, in {path}, found another one")
        return cls((-start / slope)[0], (1 / slope)[0])


def head_of(contents: Contents, path: Path, models: Sequence[str] = MODELS) -> LinearHead:
    found = _of_onnx(contents, path) if contents.kind == "ONNX" else _of_skops(contents, path, models)
    weight, bias = found.weight, found.bias
    if weight.ndim != 2 or 0 in weight.shape or weight.dtype.kind != "f":
        raise ExhumeError(f"expected a matrix of weights in {path}, found {weight.dtype} of shape {weight.shape}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ExhumeError(f"expected one intercept per output in {path}, found {bias.shape} for {weight.shape}")
    if not all(np.isfinite(part).all() for part in (weight, bias) if part is not None):
        raise ExhumeError(f"expected finite weights and intercepts in {path}, found NaN or infinite ones")
    outputs = 1 if found.classes is not None and len(found.classes) == 2 else len(found.classes or weight)
    if len(weight) != outputs:
        raise ExhumeError(f"expected {outputs} outputs for the classes in {path}, found {len(weight)}")
    return found


def _of_skops(contents: Contents, path: Path, models: Sequence[str]) -> LinearHead:
    found = list(contents.objects_of(*models))
    if len(found) != 1:
        raise UsageError(f"expected one of {', '.join(models)} in {path}, found {len(found)} of them")
    model = found[0]
    weight = model.array("coef_")
    if weight is None:
        raise ExhumeError(f"expected a fitted {model.class_name} in {path}, found no coef_")
    intercept = model.members.get("intercept_")
    bias = np.atleast_1d(np.asarray(intercept.read() if isinstance(intercept, StoredArray) else intercept or 0.0))
    fitted = model.members.get("fit_intercept") is not False
    classes = model.array("classes_")
    return LinearHead(
        np.atleast_2d(np.asarray(weight.read())).astype(np.float64),
        bias.astype(np.float64).ravel() if fitted else None,
        _loss_of(model),
        None if classes is None else tuple(classes.read().tolist()),
        steps_before(model, contents, path),
        _penalty_of(model),
    )


def _loss_of(model: StoredObject) -> str | None:
    match model.class_name:
        case "Ridge" | "RidgeCV" | "LinearRegression":
            return "square"
        case "RidgeClassifier" | "RidgeClassifierCV":
            return "signed-square"
        case "LinearSVC":
            named = str(model.members.get("loss"))
            return "squared-hinge" if named == "squared_hinge" else None
    classes = model.array("classes_")
    two = classes is not None and classes.shape == (2,)
    if model.class_name == "SGDClassifier":
        loss = SGD_LOSSES.get(str(model.members.get("loss")))
        return loss if two or loss != "logistic" else None  # one logistic function per class
    if model.members.get("refit") is False:
        return None  # an average of the models of several parts of the records
    return "logistic" if two else "cross-entropy"


def _penalty_of(model: StoredObject) -> float | None:
    if model.class_name not in OF_VERSIONS:
        return None
    if model.class_name == "LinearRegression":
        return 0.0
    stated = model.members.get("alpha" if model.class_name.startswith("Ridge") else "C")
    if not isinstance(stated, int | float) or not 0 < stated < math.inf:
        return None
    return float(stated) if model.class_name.startswith("Ridge") else 1 / float(stated)


def steps_before(model: StoredObject, contents: Contents, path: Path) -> Prepare | None:
    """The scalers in front of the model in its pipeline; any other step is refused: its outputs are the records."""
    for pipeline in contents.objects_of("Pipeline"):
        steps = pipeline.members.get("steps")
        parts = [step[1] if isinstance(step, list) and len(step) == 2 else None for step in steps or ()]
        place = next((at for at, part in enumerate(parts) if part is model), None)
        if place:
            return _one_after_another([_scaler(part, path) for part in parts[:place]])
    return None


def _one_after_another(steps: Sequence[Prepare]) -> Prepare:
    def prepare(values: np.ndarray) -> np.ndarray:
        for step in steps:
            values = step(values)
        return values

    return prepare


def _scaler(step: object, path: Path) -> Prepare:
    name = step.class_name if isinstance(step, StoredObject) else "another step"
    members = {
        "StandardScaler": (("mean_", "with_mean"), ("scale_", "with_std")),
        "RobustScaler": (("center_", "with_centering"), ("scale_", "with_scaling")),
    }
    if not isinstance(step, StoredObject) or name not in (*members, "MinMaxScaler"):
        raise UsageError(
            f"expected nothing but scalers in front of the model in {path}, found {name}; save the last step alone, "
            "and give the records as it reads them"
        )
    if name == "MinMaxScaler":
        low, factor = (_numbers(step, member, path) for member in ("min_", "scale_"))
        return lambda values: values * factor + low
    centre, scale = (_numbers(step, member, path, used) for member, used in members[name])
    return lambda values: (values - centre) / scale


def _numbers(step: StoredObject, member: str, path: Path, used: str | None = None) -> np.ndarray:
    """`used` is the setting that says whether the scaler uses these numbers; it may keep them nevertheless."""
    divides = member == "scale_" and used is not None
    found = step.members.get(member) if used is None or step.members.get(used) else None
    if found is None:
        return np.asarray(1.0 if member == "scale_" else 0.0)
    if not isinstance(found, StoredArray):
        raise ExhumeError(f"expected an array {member} of {step.class_name} in {path}, found another value")
    values = np.asarray(found.read(), dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (divides and (values == 0).any()):
        raise ExhumeError(f"expected finite numbers {member} of {step.class_name} in {path}, found others")
    return values


def _of_onnx(contents: Contents, path: Path) -> LinearHead:
    found = [node for node in contents.objects if node.class_name in NODES]
    if len(found) != 1:
        raise UsageError(f"expected one {' or '.join(NODES)} in {path}, found {len(found)}")
    node = found[0]
    coefficients, intercepts = node.array("coefficients"), node.array("intercepts")
    if coefficients is None:
        raise ExhumeError(f"expected the coefficients of {node.class_name} in {path}, found none")
    classes = _onnx_classes(node)
    if node.class_name == "LinearRegressor":
        rows = node.members.get("targets", 1)
    else:
        rows = len(classes or ()) if intercepts is None else intercepts.numbers
    if type(rows) is not int or rows < 1 or coefficients.numbers % rows:
        raise ExhumeError(f"expected coefficients for each of {rows} outputs in {path}, found {coefficients.numbers}")
    weight = np.asarray(coefficients.read(), dtype=np.float64).reshape(rows, -1)
    bias = None if intercepts is None else np.asarray(intercepts.read(), dtype=np.float64).ravel()
    if classes is not None and len(classes) == 2 and len(weight) == 2 and np.array_equal(weight[0], -weight[1]):
        weight, bias = weight[1:], None if bias is None else bias[1:]  # of two classes both signs are kept
    loss = {"SOFTMAX": "cross-entropy", "LOGISTIC": "logistic"}.get(str(node.members.get("post_transform")))
    if loss == "logistic" and len(weight) > 1:
        loss = None  # one logistic function per class
    if node.class_name == "LinearRegressor":
        loss = "square"
    return LinearHead(weight, bias, loss, classes, steps_of_onnx(node, contents, path))


def _onnx_classes(node: StoredObject) -> tuple[Any, ...] | None:
    for name in ("classlabels_ints", "classlabels_strings"):
        values = node.members.get(name)
        if isinstance(values, list) and values:
            return tuple(values)
    return None


def steps_of_onnx(node: StoredObject, contents: Contents, path: Path) -> Prepare | None:
    reads = node.members["inputs"][:1]
    if reads and reads[0] in contents.values["inputs"]:
        return None
    before = [other for other in contents.objects if set(reads) & set(other.members["outputs"])]
    scaler = before[0] if len(before) == 1 else None
    if scaler is None or scaler.class_name != "Scaler" or scaler.members["inputs"][:1] != contents.values["inputs"][:1]:
        name = "another step" if scaler is None else scaler.class_name
        raise UsageError(
            f"expected nothing but a Scaler in front of the model in {path}, found {name}; export the last step alone, "
            "and give the records as it reads them"
        )
    return scaler_of_onnx(scaler, path)


def scaler_of_onnx(scaler: StoredObject, path: Path) -> Prepare:
    offset, scale = scaler.array("offset"), scaler.array("scale")
    if offset is None or scale is None:
        raise ExhumeError(f"expected offset and scale of the Scaler in {path}, found one of them at most")
    centre, factor = np.asarray(offset.read(), np.float64), np.asarray(scale.read(), np.float64)
    if not (np.isfinite(centre).all() and np.isfinite(factor).all()):
        raise ExhumeError(f"expected finite numbers of the Scaler in {path}, found NaN or infinite ones")
    return lambda values: (values - centre) * factor
