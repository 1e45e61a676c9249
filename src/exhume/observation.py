"""All that an attacker may see: the feature map, the weights, and what else is explicitly known.

A victim writes an observation, an attack reads it, and neither knows the other. The random-features matrix is public
(kept as the seed of its own stream, or as a file); the data's seed and the data are not part of an observation.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import activation
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, MappedRows, Rows, write_rows
from exhume.files import read_tensors, require_tensors, write_tensors

KIND = "observation"
FEATURES_FILE = "features.safetensors"


@dataclass(frozen=True)
class Knowledge:
    """What the attacker is told besides the feature map and the weights.

    `samples`: the number n of training samples, or None. `norm`: the norm that every training row has, or None.
    `initial`: what is known of the weights before training; zero for a closed-form fit, so that the weights
    themselves are the combination of the features.
    """

    samples: int | None = None
    norm: float | None = None
    initial: Literal["zero"] = "zero"

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise UsageError(f"expected at least 1 sample, found {self.samples}")
        if self.norm is not None and not 0 < self.norm < math.inf:
            raise UsageError(f"expected a positive norm of the samples, found {self.norm}")


@dataclass(frozen=True, eq=False)
class Observation:
    """Weights θ (k × p, one row an output) that are combinations θ = AᵀΦ(X) of the features of unknown inputs."""

    features: RidgeFeatures
    weights: Float[Tensor, "k p"]
    knowledge: Knowledge
    image_shape: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.weights.shape[1] != self.features.p:
            raise ExhumeError(
                f"expected one weight a feature (p = {self.features.p}), found {self.weights.shape[1]} weights"
            )
        bad = int((~torch.isfinite(self.weights)).sum())
        if bad:
            raise ExhumeError(f"expected finite weights, found {bad} that are NaN or infinite; check the weights file")
        bias = self.features.bias
        if bias is not None and bias.shape != (self.features.p,):
            raise ExhumeError(
                f"expected one bias a feature (p = {self.features.p}), found a bias of shape {list(bias.shape)}"
            )
        if bias is not None and not torch.isfinite(bias).all():
            raise ExhumeError("expected a finite bias of the features, found NaN or infinite entries")

    @property
    def p(self) -> int:
        return self.weights.numel()

    @property
    def d(self) -> int:
        return self.features.d

    def told(self, samples: int | None) -> "Observation":
        """The same observation for an attacker who is told this number of samples (None: not told)."""
        return replace(self, knowledge=replace(self.knowledge, samples=samples))


def save_observation(observation: Observation, path: Path) -> None:
    """Writes the observation; rows that are only in memory go to a features file beside it."""
    tensors = {"weights": observation.weights}
    if observation.features.bias is not None:
        tensors["bias"] = observation.features.bias
    meta = {
        "rows": _describe_rows(observation.features.rows, path),
        "activation": observation.features.activation.name,
        "knowledge": asdict(observation.knowledge),
        "image_shape": observation.image_shape,
    }
    write_tensors(path, KIND, tensors, meta)


def load_observation(path: Path) -> Observation:
    file = read_tensors(path, KIND)
    require_tensors(file, path, "weights")
    try:
        meta = file.meta
        rows = _restore_rows(meta["rows"], path)
        image_shape = _restore_image_shape(meta["image_shape"], rows.d, path)
        act = activation(str(meta["activation"]))
        knowledge = _restore_knowledge(meta["knowledge"], path)
    except (KeyError, TypeError) as problem:
        raise ExhumeError(f"expected a complete observation in {path}, found it damaged at {problem}") from problem
    except UsageError as problem:  # the file is at fault, not the request
        raise ExhumeError(f"expected a complete observation in {path}, found it damaged: {problem}") from problem
    weights, bias = file.tensors["weights"], file.tensors.get("bias")
    for name, tensor, rank in (("weights", weights, 2), ("bias", bias, 1)):
        if tensor is not None and (tensor.ndim != rank or not tensor.is_floating_point()):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ExhumeError(
                f"expected {name} of {rank} dimensions in floating point in {path}, "
                f"found {kind} of shape {list(tensor.shape)}"
            )
    return Observation(RidgeFeatures(rows, act, bias), weights, knowledge, image_shape)


def _describe_rows(rows: Rows, path: Path) -> dict[str, Any]:
    match rows:
        case DrawnRows():
            return {"kind": "drawn", "seed": rows.seed, "p": rows.p, "d": rows.d, "first": rows.first}
        case MappedRows() if rows.path.parent.resolve() == path.parent.resolve():
            return {"kind": "file", "name": rows.path.name, "p": rows.p, "first": rows.first}
        case MappedRows() | HeldRows():
            written = write_rows(rows, path.with_name(FEATURES_FILE))
            return {"kind": "file", "name": FEATURES_FILE, "p": written.p, "first": 0}
    raise TypeError(f"rows of a kind that has no file form: {type(rows).__name__}")


def _restore_knowledge(told: Any, path: Path) -> Knowledge:
    samples, norm, initial = told["samples"], told["norm"], told["initial"]
    understood = (samples is None or type(samples) is int) and (norm is None or type(norm) is float)
    if not understood or initial != "zero" or len(told) != 3:
        raise ExhumeError(f"expected samples, norm and the initial weights 'zero' in {path}, found {told}")
    return Knowledge(samples, norm, initial)


def _restore_rows(described: Any, path: Path) -> Rows:
    p, first = described["p"], described["first"]
    drawn = described["kind"] == "drawn"
    numbers = (p, first, *((described["seed"], described["d"]) if drawn else ()))
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers) or p < 1:
        raise ExhumeError(f"expected whole numbers for the features in {path}, found {described}")
    if drawn:
        if described["d"] < 1:
            raise ExhumeError(f"expected features of at least 1 dimension in {path}, found {described['d']}")
        return DrawnRows(described["seed"], p, described["d"], first)
    name = str(described["name"])
    if not name or Path(name).name != name or not name.isprintable():
        raise ExhumeError(f"expected the features file beside {path}, found the name {name!r}")
    whole = MappedRows.open(path.with_name(name))
    if first + p > whole.p:
        raise ExhumeError(f"expected rows {first} to {first + p} in {path.with_name(name)}, found {whole.p} rows")
    return whole.part(first, first + p)


def _restore_image_shape(shape: Any, d: int, path: Path) -> tuple[int, int, int] | None:
    if shape is None:
        return None
    if [type(side) for side in shape] != [int, int, int] or min(shape) < 1 or math.prod(shape) != d:
        raise ExhumeError(f"expected an image shape of d = {d} numbers in {path}, found {shape}")
    return (shape[0], shape[1], shape[2])
