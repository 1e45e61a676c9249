"""The training data of a run, in a file that no attack opens."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor

from exhume.data.dataset import Dataset, Preparation
from exhume.errors import ExhumeError
from exhume.files import read_tensors, require_tensors, write_tensors


@dataclass(frozen=True, eq=False)
class Truth:
    """The training data as the victim saw it, and the way back to pixels.

    `coefficients` are those of the weights' combination of features, None where they are not known.
    """

    inputs: Float[Tensor, "n d"]
    labels: Float[Tensor, " n"]
    coefficients: Float[Tensor, " n"] | None
    class_index: Int[Tensor, " n"]
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int] | None
    preparation: Preparation


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
        shape = tuple(file.meta["image_shape"]) if file.meta["image_shape"] else None
        class_names = tuple(file.meta["class_names"])
        standardise, norm = file.meta["standardise"], file.meta["norm"]
    except (KeyError, TypeError) as problem:
        raise ExhumeError(f"expected the whole truth in {path}, found it damaged at {problem}") from problem
    return Truth(
        inputs=file.tensors["inputs"],
        labels=file.tensors["labels"],
        coefficients=file.tensors.get("coefficients"),
        class_index=file.tensors["class_index"],
        class_names=class_names,
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
