"""All that an attacker may see: the feature map, the weights, and what else is explicitly known.

A victim writes an observation, an attack reads it, and neither knows the other. The random-features matrix is public
(kept as the seed of its own stream, or as a file); the data's seed and the data are not part of an observation.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import activation
from exhume.errors import ExhumeError
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
        image_shape = tuple(meta["image_shape"]) if meta["image_shape"] else None
        features = RidgeFeatures(rows, activation(meta["activation"]), file.tensors.get("bias"))
        knowledge = Knowledge(**meta["knowledge"])
    except (KeyError, TypeError) as problem:
        raise ExhumeError(f"expected a complete observation in {path}, found it damaged at {problem}") from problem
    weights = file.tensors["weights"]
    if weights.ndim != 2 or not weights.is_floating_point():
        raise ExhumeError(f"expected weights of shape outputs x p in {path}, found {weights.dtype} {weights.shape}")
    return Observation(features, weights, knowledge, image_shape)


def _describe_rows(rows: Rows, path: Path) -> dict[str, Any]:
    match rows:
        case DrawnRows():
            return {"kind": "drawn", "seed": rows.seed, "p": rows.p, "d": rows.d, "first": rows.first}
        case MappedRows() if rows.path.parent == path.parent:
            return {"kind": "file", "name": rows.path.name}
        case MappedRows() | HeldRows():
            write_rows(rows, path.with_name(FEATURES_FILE))
            return {"kind": "file", "name": FEATURES_FILE}
    raise TypeError(f"rows of a kind that has no file form: {type(rows).__name__}")


def _restore_rows(described: dict[str, Any], path: Path) -> Rows:
    if described["kind"] == "drawn":
        rows = DrawnRows(described["seed"], described["p"], described["d"], described["first"])
        if not all(isinstance(number, int) for number in (rows.seed, rows.p, rows.d, rows.first)) or rows.d < 1:
            raise ExhumeError(f"expected whole numbers for the drawn features in {path}, found {described}")
        return rows
    name = str(described["name"])
    if Path(name).name != name:
        raise ExhumeError(f"expected the features file beside {path}, found the name {name!r}")
    return MappedRows.open(path.with_name(name))
