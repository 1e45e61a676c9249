"""The training data of a run, in a file that no attack opens."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.data.dataset import Dataset, Preparation
from exhume.data.image_scales import Norm, Standardise
from exhume.data.tables.table import Table
from exhume.errors import ExhumeError
from exhume.files import read_tensors, require_tensors, write_tensors


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """The training data as the victim saw it, and the way back to pixels.

    `coefficients` are those of the weights' combination of features, None where they are not known.
    """

    inputs: Float[Tensor, "n d"] = field(repr=False)
    labels: Float[Tensor, " n"] = field(repr=False)
    coefficients: Float[Tensor, " n"] | None
    class_index: Int[Tensor, " n"]
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int] | None
    preparation: Preparation
    table: Table | None = None
    """The same records in their owner's units, where they came as a table."""


def save_truth(data: Dataset, coefficients: Float[Tensor, " n"] | None, path: Path) -> None:
    preparation = data.preparation
    tensors = {
        "inputs": data.inputs,
        "labels": data.labels,
        "class_index": data.class_index,
        "mean": preparation.mean,
        "std": preparation.std,
        "scale": preparation.scale,
    }
    if coefficients is not None:
        tensors["coefficients"] = coefficients
    meta = {
        "class_names": data.class_names,
        "image_shape": data.image_shape,
        "standardise": preparation.standardise,
        "norm": preparation.norm,
    }
    write_tensors(path, "truth", tensors, meta)


def load_truth(path: Path) -> Truth:
    file = read_tensors(path, "truth")
    require_tensors(file, path, "inputs", "labels", "class_index", "mean", "std", "scale")
    try:
        shape = file.meta["image_shape"]
        class_names, standardise, norm = (file.meta[name] for name in ("class_names", "standardise", "norm"))
    except KeyError as problem:
        raise ExhumeError(f"expected the whole truth in {path}, found it damaged at {problem}") from problem
    _check_tensors(file.tensors, path)
    n, d = file.tensors["inputs"].shape
    if shape is not None and not _is_shape(shape, d, len(file.tensors["mean"])):
        raise ExhumeError(f"expected images of {d} numbers in {path}, found the shape {shape}")
    understood = standardise in get_args(Standardise) and norm in get_args(Norm) and isinstance(class_names, list)
    if not understood or not all(isinstance(name, str) for name in class_names):
        raise ExhumeError(f"expected names of classes and how {n} rows were prepared in {path}, found others")
    shape = None if shape is None else (shape[0], shape[1], shape[2])
    return Truth(
        inputs=file.tensors["inputs"],
        labels=file.tensors["labels"],
        coefficients=file.tensors.get("coefficients"),
        class_index=file.tensors["class_index"],
        class_names=tuple(class_names),
        image_shape=shape,
        preparation=Preparation(
            mean=file.tensors["mean"],
            std=file.tensors["std"],
            scale=file.tensors["scale"],
            image_shape=shape,
            standardise=standardise,
            norm=norm,
        ),
    )


def _check_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """n rows of d finite numbers, one label, class and scale each; a mean and a standard deviation per channel."""
    inputs, mean = tensors["inputs"], tensors["mean"]
    if inputs.ndim != 2 or inputs.numel() == 0:
        raise ExhumeError(f"expected n x d inputs in {path}, found shape {list(inputs.shape)}")
    channels = (len(mean),) if mean.ndim else (0,)
    each = (len(inputs),)
    shapes = {
        "labels": each,
        "class_index": each,
        "scale": each,
        "coefficients": each,
        "mean": channels,
        "std": channels,
    }
    for name, tensor in tensors.items():
        if name in shapes and tuple(tensor.shape) != shapes[name]:
            raise ExhumeError(f"expected {name} of shape {list(shapes[name])} in {path}, found {list(tensor.shape)}")
        if name == "class_index":
            fine = tensor.dtype == torch.int64
        else:
            fine = name not in shapes | {"inputs": each} or _is_finite(tensor)
        if not fine:
            raise ExhumeError(f"expected finite numbers as {name} in {path}, found others; train again")


def _is_finite(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and bool(torch.isfinite(tensor).all())


def _is_shape(shape: Any, d: int, channels: int) -> bool:
    whole = isinstance(shape, list) and [type(side) for side in shape] == [int, int, int]
    return whole and min(shape) > 0 and math.prod(shape) == d and shape[0] == channels
