"""All that an attacker may see: the feature map, the weights, and what else is explicitly known.

A victim writes an observation, an attack reads it, and neither knows the other. The random-features matrix is public
(kept as the seed of its own stream, or as a file), and so is a network in front of its head (kept as the name of the
code that builds it, and tensors); the data's seed and the data are not part of an observation.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import machine
from exhume.activations import activation
from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures
from exhume.features.network import network_features
from exhume.features.network_source import NetworkSource
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import CHUNK_ROWS, DrawnRows, MappedRows, Rows, write_rows
from exhume.files import TensorFile, read_tensors, require_tensors, write_tensors
from exhume.known import Known
from exhume.layer_states import LayerStates
from exhume.network_ends import NetworkEnds
from exhume.recipe import Recipe
from exhume.shown import Shown
from exhume.start_rule import StartRule

KIND = "observation"
FEATURES_FILE = "features.safetensors"
INITIAL_FILE = "initial.safetensors"
OTHER_TENSORS = {"head": 2, "subspace": 2, "initial_bias": 1, "output_bias": 1}
"""Fields of an observation that its file may hold, with their number of dimensions."""
REPEATED = 1e-4  # singular values of the weights, over the largest: outputs that repeat each other show 1e-7
Initial = Literal["zero", "known", "seed", "distribution"]


@dataclass(frozen=True)
class Knowledge:
    """What the attacker knows besides the feature map and the weights.

    `samples`: the number n of training samples, or None. `norm`: the norm that every training row has, or None.
    `initial`: what is known of the head W(0) before training, and so what the weights of the observation are:

    - "zero": training started at zero (as a closed-form fit does), and the weights are the published head W(T);
    - "known": W(0) is known, and the weights are the change W(T) − c W(0), where c is what weight decay left of W(0)
      (1 without it);
    - "seed": W(0) is one of the heads that a known rule draws from a seed, and the weights are W(T): the attacker may
      try seeds;
    - "distribution": W(0) is only known to be random and small, and the weights are W(T), in which it is noise.

    `initial_body`: whether the layers before the head are known from before training too, and moved; the features are
    then the average of theirs and of the trained ones'. None where nobody knows whether they moved.
    """

    samples: int | None = None
    norm: float | None = None
    initial: Initial = "zero"
    initial_body: bool | None = False

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise UsageError(f"expected at least 1 sample, found {self.samples}")
        if self.norm is not None and not 0 < self.norm < math.inf:
            raise UsageError(f"expected a positive norm of the samples, found {self.norm}")


@dataclass(frozen=True, eq=False, repr=False)
class Observation(Shown):
    """Weights θ (k × p, one row an output) that are combinations θ = AᵀΦ(X) of the features of unknown inputs."""

    features: RidgeFeatures | ModuleFeatures
    weights: Float[Tensor, "k p"]
    knowledge: Knowledge
    image_shape: tuple[int, int, int] | None = None
    start: StartRule | None = None
    """How the initial head was drawn, where it is known up to its seed."""
    head: Float[Tensor, "k p"] | None = None
    """The published head W(T), where the weights are its change."""
    initial_rows: Rows | None = None
    """The rows of the first layer before training, where they are known; those of the features are the trained ones, or
    the average of both if the knowledge says so."""
    subspace: Float[Tensor, "d r"] | None = None
    """Columns that span a subspace which the data are known to lie in."""
    known: Known | None = None
    """Training samples that an informed adversary has; they come from a file of their own."""
    layers: tuple[LayerStates, ...] = ()
    """Dense layers at several moments of their training, those that read the inputs first. They are not written to the
    file of an observation: a network is observed again from its source."""
    initial_bias: Float[Tensor, " p"] | None = None
    """The bias of the first layer before training, with its rows."""
    output_bias: Float[Tensor, " k"] | None = None
    """The bias of the head, or its change as the weights have it: the weights of a feature that is always 1."""
    ends: NetworkEnds | None = None
    """The whole network before and after training, where both are known; not written to the file either."""
    recipe: Recipe | None = None
    """How the network was trained, where its owner says so; it comes from a file of its own."""

    def __post_init__(self) -> None:
        if self.weights.shape[1] != self.features.p:
            raise ExhumeError(
                f"expected one weight per feature (p = {self.features.p}), found {self.weights.shape[1]} weights"
            )
        bad = int((~torch.isfinite(self.weights)).sum())
        if bad:
            raise ExhumeError(f"expected finite weights, found {bad} that are NaN or infinite; check the weights file")
        bias = self.features.bias
        if bias is not None and bias.shape != (self.features.p,):
            raise ExhumeError(
                f"expected one bias per feature (p = {self.features.p}), found a bias of shape {list(bias.shape)}"
            )
        if bias is not None and not torch.isfinite(bias).all():
            raise ExhumeError("expected a finite bias of the features, found NaN or infinite entries")
        if self.initial_rows is not None:
            _check_first_layer(self.features, self.initial_rows)
        _check_vector("initial bias", self.initial_bias, self.features.p)
        _check_vector("bias of the head", self.output_bias, len(self.weights))
        if self.subspace is not None and (len(self.subspace) != self.d or not 1 <= self.subspace.shape[1] <= self.d):
            shape = list(self.subspace.shape)
            raise ExhumeError(f"expected a subspace as d x r columns with r <= d = {self.d}, found shape {shape}")

    def _lines(self) -> dict[str, str | int | float | None]:
        knowledge, (outputs, p) = self.knowledge, self.weights.shape
        return {
            "weights": f"{outputs:,} x {p:,}",
            "features": self.features.description,
            "initial": knowledge.initial,
            "layers": ", ".join(layer.name for layer in self.layers) or None,
            "samples": knowledge.samples,
            "norm": knowledge.norm,
            "image_shape": None if self.image_shape is None else " x ".join(map(str, self.image_shape)),
            "subspace": None if self.subspace is None else f"{self.subspace.shape[1]:,} of {self.d:,} dimensions",
            "known_samples": None if self.known is None else len(self.known),
        }

    @property
    def published_head(self) -> Float[Tensor, "k p"] | None:
        """W(T), where it is known: with the initial head known, the weights are only its change."""
        return self.weights if self.head is None and self.knowledge.initial != "known" else self.head

    @property
    def p(self) -> int:
        return self.weights.numel()

    @property
    def equations(self) -> int:
        """p, where outputs that repeat each other count once: those of a two-class cross-entropy move oppositely."""
        rank = int(torch.linalg.matrix_rank(self.weights.double(), rtol=REPEATED))
        return max(rank, 1) * self.weights.shape[1]

    @property
    def d(self) -> int:
        return self.features.d

    @property
    def ridge(self) -> RidgeFeatures:
        """The features of an observation that is known to have the form φ(Vx + b)."""
        if not isinstance(self.features, RidgeFeatures):
            raise ExhumeError(f"expected features of the form phi(Vx + b), found {self.features.description}")
        return self.features

    @property
    def network(self) -> ModuleFeatures:
        """The features of an observation that is known to be of a network."""
        if not isinstance(self.features, ModuleFeatures):
            raise ExhumeError(f"expected the features of a network, found {self.features.description}")
        return self.features

    def knowing(self, samples: int | None) -> "Observation":
        """The same observation for an attacker who knows this number of samples (None: who does not)."""
        return replace(self, knowledge=replace(self.knowledge, samples=samples))


def save_observation(observation: Observation, path: Path) -> None:
    """Writes the observation; rows that are only in memory go to a features file beside it."""
    features = observation.features
    tensors = {"weights": observation.weights}
    meta: dict[str, Any] = {"knowledge": asdict(observation.knowledge), "image_shape": observation.image_shape}
    if not features.is_network:
        ridge = observation.ridge
        meta |= {"rows": _describe_rows(ridge.rows, path, FEATURES_FILE), "activation": ridge.activation.name}
        meta |= {"trained": ridge.trained}
        tensors |= {} if ridge.bias is None else {"bias": ridge.bias}
        if observation.initial_rows is not None:
            meta |= {"initial_rows": _describe_rows(observation.initial_rows, path, INITIAL_FILE)}
    elif features.source is not None:
        meta |= {"network": features.source.describe()}
        tensors |= features.source.tensors() | ({} if features.chosen is None else {"chosen": features.chosen})
    else:
        raise ExhumeError("expected features with a source to make them from again, found a function of unknown origin")
    others = {name: getattr(observation, name) for name in OTHER_TENSORS}
    tensors |= {name: tensor for name, tensor in others.items() if tensor is not None}
    if observation.start is not None:
        meta |= {"start": observation.start.describe()}
        tensors |= {} if observation.start.kept is None else {"start.kept": observation.start.kept}
    write_tensors(path, KIND, tensors, meta)


def load_observation(path: Path, factory: str | None = None) -> Observation:
    """Reads an observation. Code that is not exhume's own runs only if `factory` names it (package.module:factory)."""
    file = read_tensors(path, KIND)
    require_tensors(file, path, "weights")
    _check_numbers(file.tensors, path)
    try:
        features = _restore_features(file, path, factory)
        image_shape = _restore_image_shape(file.meta["image_shape"], features.d, path)
        knowledge = _restore_knowledge(file.meta["knowledge"], path)
        rule = file.meta.get("start")
        start = None if rule is None else StartRule.restore(rule, file.tensors.get("start.kept"))
        before = file.meta.get("initial_rows")
        initial_rows = None if before is None else _restore_rows(before, path)
    except (KeyError, TypeError) as problem:
        raise ExhumeError(f"expected a complete observation in {path}, found it damaged at {problem}") from problem
    except UsageError as problem:  # the file is at fault, not the request
        raise ExhumeError(f"expected a complete observation in {path}, found it damaged: {problem}") from problem
    others: Any = {name: file.tensors.get(name) for name in OTHER_TENSORS}
    bare = Observation(features, file.tensors["weights"], knowledge, image_shape, start, initial_rows=initial_rows)
    return replace(bare, **others)


def _check_vector(name: str, vector: Tensor | None, size: int) -> None:
    if vector is not None and (vector.shape != (size,) or not torch.isfinite(vector).all()):
        raise ExhumeError(f"expected {size} finite numbers as {name}, found others, of shape {list(vector.shape)}")


def _check_first_layer(features: RidgeFeatures | ModuleFeatures, initial: Rows) -> None:
    shape, found = [features.p, features.d], [initial.p, initial.d]
    if features.is_network or shape != found:
        raise ExhumeError(
            f"expected an initial first layer with the features phi(Vx + b) that it belongs to, of shape {shape}, "
            f"found {features.description} and shape {found}"
        )


def _check_numbers(tensors: dict[str, Tensor], path: Path) -> None:
    for name, rank in {"weights": 2, "bias": 1, **OTHER_TENSORS}.items():
        tensor = tensors.get(name)
        if tensor is not None and (tensor.ndim != rank or not tensor.is_floating_point()):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ExhumeError(
                f"expected {name} of {rank} dimensions in floating point in {path}, "
                f"found {kind} of shape {list(tensor.shape)}"
            )
    head, weights = tensors.get("head"), tensors["weights"]
    if head is not None and head.shape != weights.shape:
        shapes = f"{list(weights.shape)} and {list(head.shape)}"
        raise ExhumeError(f"expected a head of the shape of its change in {path}, found {shapes}")


def _restore_features(file: TensorFile, path: Path, factory: str | None) -> RidgeFeatures | ModuleFeatures:
    if "network" in file.meta:
        return _restore_network(file, path, factory)
    if factory is not None:
        raise ExhumeError(f"expected no --model for {path}, whose features need no code, found {factory!r}")
    rows = _restore_rows(file.meta["rows"], path)
    trained = bool(file.meta.get("trained", file.meta["rows"]["kind"] != "drawn"))  # not said by the first files
    return RidgeFeatures(rows, activation(str(file.meta["activation"])), file.tensors.get("bias"), trained)


def _restore_network(file: TensorFile, path: Path, factory: str | None) -> ModuleFeatures:
    source = NetworkSource.restore(file.meta["network"], file.tensors)
    features = network_features(source, factory, str(path))
    chosen = file.tensors.get("chosen")
    if chosen is None:
        return features
    counted = chosen.ndim == 1 and chosen.dtype == torch.int64 and len(torch.unique(chosen)) == len(chosen) > 0
    if not counted or not 0 <= int(chosen.min()) <= int(chosen.max()) < features.p:
        raise ExhumeError(f"expected numbers of features below {features.p} in {path}, found others")
    return features.part(chosen)


def _describe_rows(rows: Rows, path: Path, file_name: str) -> dict[str, Any]:
    described = rows.described(path.parent)
    if described is not None:
        return described
    written = write_rows(rows, path.with_name(file_name))
    return {"kind": "file", "name": file_name, "p": written.p, "first": 0}


def _restore_knowledge(kept: Any, path: Path) -> Knowledge:
    samples, norm, initial = kept["samples"], kept["norm"], kept["initial"]
    body = kept.get("initial_body", False)  # files of the first form do not have it
    understood = (samples is None or type(samples) is int) and (norm is None or type(norm) is float)
    understood = understood and initial in get_args(Initial) and (body is None or type(body) is bool)
    if not understood or len(kept) != 3 + ("initial_body" in kept):
        raise ExhumeError(f"expected samples, norm and what is known of the initial weights in {path}, found {kept}")
    return Knowledge(samples, norm, initial, body)


def _restore_rows(described: Any, path: Path) -> Rows:
    p, first = described["p"], described["first"]
    drawn = described["kind"] == "drawn"
    numbers = (p, first, *((described["seed"], described["d"]) if drawn else ()))
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers) or p < 1:
        raise ExhumeError(f"expected whole numbers for the features in {path}, found {described}")
    if drawn:
        if described["d"] < 1:
            raise ExhumeError(f"expected features of at least 1 dimension in {path}, found {described['d']}")
        if CHUNK_ROWS * 4 * described["d"] > machine.memory_bytes():  # no fewer rows are drawn at once
            raise ExhumeError(
                f"expected features of a dimension that this machine can hold in {path}, found {described['d']:,}"
            )
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
