"""Records to hold an audit against: those that the model was trained on, and control records of the same kind.

An audit needs rows exactly as the model saw them. A safetensors file with a tensor `inputs` (and `labels`, if there are
any) is that by definition; images of a folder or of a known data set are prepared as `exhume train` prepares them.
Control records go through the preparation of the training records.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.auditing.table_scaling import scale
from exhume.data.config import DataConfig
from exhume.data.dataset import Preparation
from exhume.data.load import load
from exhume.data.records import prepare_alike
from exhume.data.tables.arranging import arranged
from exhume.data.tables.reading import SUFFIXES, read_table
from exhume.data.tables.table import Cell
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.truth import Truth, load_truth
from exhume.formats.linear_head import Scaler
from exhume.formats.reading import read_contents
from exhume.observing.weights_file import read_weights
from exhume.tensor_header import read_header

SAME = 1e-4
"""Pixels that differ by less are those of the same image."""
ROWS_TENSOR = "inputs"
ARRAYS = (".npz", ".npy")
MOST_CLASSES = 100_000
"""Larger labels are numbers to predict, not classes."""


@dataclass(frozen=True)
class TableOptions:
    """How a table becomes rows: the column that is no input, what the others are, and how numbers were scaled.

    `scaler`: what the model's own file does to a record first; it counts where `scaling` is None.
    """

    label: str | None = None
    scaling: str | None = None
    columns: Path | None = None
    scaler: Scaler | None = None

    def scaled(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Rows without columns, as the file's own scaler makes them."""
        if self.scaling is not None or self.scaler is None or rows.shape[1] != len(self.scaler.centre):
            return rows
        centre, scale = (torch.from_numpy(part) for part in (self.scaler.centre, self.scaler.scale))
        return ((rows.double() - centre) / scale).to(rows)


TABLE = TableOptions()


@dataclass(frozen=True, eq=False)
class Control:
    """Rows that were not trained on, and their labels where they have any."""

    inputs: Float[Tensor, "c d"] = field(repr=False)
    labels: Float[Tensor, " c"] | None = field(default=None, repr=False)

    def first(self, count: int) -> "Control":
        """As many as there are training records, so that counts can be compared: m candidates meet at most m rows."""
        return Control(self.inputs[:count], None if self.labels is None else self.labels[:count])


def records_of_rows(
    inputs: Tensor,
    labels: Tensor | None = None,
    image_shape: tuple[int, int, int] | None = None,
) -> Truth:
    """Rows as the model saw them. Inputs of three or four dimensions are images; they are shown from their smallest to
    their largest value, or as they are if they lie in [0, 1]."""
    if inputs.ndim < 2 or len(inputs) == 0 or not inputs.is_floating_point():
        raise UsageError(f"expected rows of floating point numbers, found {inputs.dtype} of shape {list(inputs.shape)}")
    if inputs.ndim == 4 and image_shape is None:
        image_shape = (inputs.shape[1], inputs.shape[2], inputs.shape[3])
    elif inputs.ndim == 3 and image_shape is None:
        image_shape = (1, inputs.shape[1], inputs.shape[2])
    rows = inputs.detach().flatten(start_dim=1).float()
    if image_shape is not None and math.prod(image_shape) != rows.shape[1]:
        raise UsageError(f"expected images of {rows.shape[1]} numbers, found the shape {list(image_shape)}")
    if not bool(rows.isfinite().all()):
        raise ExhumeError("expected finite numbers in the records, found NaN or infinite ones")
    low, high = float(rows.min()), float(rows.max())
    if low < 0 or high > 1:
        scale = 1 / (high - low) if high > low else 1.0
        mean, std = -low * scale, scale
    else:
        mean, std = 0.0, 1.0
    channels = image_shape[0] if image_shape is not None else 0
    given = labels is not None
    target = torch.zeros(len(rows)) if labels is None else labels.detach().flatten().float()
    if len(target) != len(rows):
        raise UsageError(f"expected one label for each of {len(rows)} records, found {len(target)}")
    if not bool(target.isfinite().all()):
        raise ExhumeError("expected finite labels of the records, found NaN or infinite ones")
    whole = given and bool((target == target.round()).all()) and len(target.unique()) > 1
    whole = whole and float(target.min()) >= 0 and float(target.max()) < MOST_CLASSES
    return Truth(
        inputs=rows,
        labels=target if given else torch.full((len(rows),), torch.nan),
        coefficients=None,
        class_index=target.long() if whole else torch.full((len(rows),), -1),
        class_names=tuple(str(index) for index in range(int(target.max()) + 1)) if whole else (),
        image_shape=image_shape,
        preparation=Preparation(
            mean=torch.full((channels,), mean),
            std=torch.full((channels,), std),
            scale=torch.ones(len(rows)),
            image_shape=image_shape,
            standardise="none",
            norm="keep",
        ),
    )


def is_a_file(name: str) -> bool:
    """Whether records are named by a file of rows; any other kind of file is refused here, with the way out."""
    if name.endswith((".safetensors", *ARRAYS, *SUFFIXES)):
        return True
    if Path(name).is_file():
        raise UsageError(
            f"expected records as .safetensors, .csv, .parquet, .npz or .npy, a folder of images or a known data set, "
            f"found the file {name}; "
            f"write its rows with safetensors.torch.save_file({{'inputs': rows, 'labels': labels}}, 'data.safetensors')"
        )
    return False


def read_records(
    path: Path, image_shape: tuple[int, int, int] | None = None, how: TableOptions = TABLE, like: Truth | None = None
) -> Truth:
    """Records of any file of rows. A table takes the columns and the scaling of the records that it is held against."""
    if not path.name.endswith(SUFFIXES):
        if how.columns is not None:
            raise UsageError(f"expected a table (.csv, .parquet) with --columns, found {path}, which names no columns")
        found = read_rows(path, image_shape)
        rows = how.scaled(found.inputs)
        given = None if bool(found.labels.isnan().any()) else found.labels
        return found if rows is found.inputs else records_of_rows(rows, given, image_shape)
    table = read_table(path)
    labels = None
    if how.label is not None:
        table, stated = table.without(how.label)
        labels = _labels(stated)
    if how.columns is not None:
        table = arranged(table, how.columns)
    if like is not None and like.table is not None:
        table = table.like(like.table)
    elif how.scaling is not None:
        table = scale(table, how.scaling)
    elif how.scaler is not None and len(how.scaler.centre) == table.width:
        table = table.scaled(how.scaler.centre.tolist(), how.scaler.scale.tolist())
    return replace(records_of_rows(table.rows(), labels, image_shape), table=table)


def _labels(cells: tuple[Cell, ...]) -> Tensor:
    """Numbers as they are; texts by their place in the alphabet, as scikit-learn's classes are."""
    if all(isinstance(cell, float) for cell in cells):
        return torch.tensor([float(cell) for cell in cells])
    classes = sorted({str(cell) for cell in cells})
    return torch.tensor([float(classes.index(str(cell))) for cell in cells])


def _read_arrays(path: Path, image_shape: tuple[int, int, int] | None) -> Truth:
    """`inputs` (or X, x, x_train, or the only array of two or more dimensions) and `labels` (or y, y_train)."""
    arrays = read_contents(path).arrays
    rows = next((arrays[name] for name in (ROWS_TENSOR, "X", "x", "x_train", "X_train") if name in arrays), None)
    if rows is None:
        several = [array for array in arrays.values() if len(array.shape) >= 2]
        if len(several) != 1:
            raise ExhumeError(f"expected an array named {ROWS_TENSOR} in {path}, found {', '.join(list(arrays)[:5])}")
        rows = several[0]
    labels = next((arrays[name] for name in ("labels", "y", "y_train") if name in arrays), None)
    values = [None if array is None else np.array(array.read()) for array in (rows, labels)]
    if any(value is not None and value.dtype.kind not in "fiub" for value in values):
        raise ExhumeError(f"expected numbers in {path}, found others")
    tensors = [None if value is None else torch.from_numpy(value.astype(np.float64)).float() for value in values]
    assert tensors[0] is not None
    return records_of_rows(tensors[0], tensors[1], image_shape)


def read_rows(path: Path, image_shape: tuple[int, int, int] | None = None) -> Truth:
    """Records of a safetensors file: the truth of a run folder, or a tensor `inputs` with `labels` beside it."""
    if path.name.endswith(ARRAYS):
        return _read_arrays(path, image_shape)
    if path.is_file() and read_header(path).exhume.get("kind") == "truth":
        return load_truth(path)
    tensors = read_weights(path).tensors
    if ROWS_TENSOR not in tensors:
        raise ExhumeError(
            f"expected a tensor named {ROWS_TENSOR} in {path}, found {', '.join(map(repr, list(tensors)[:5]))}"
        )
    return records_of_rows(tensors[ROWS_TENSOR], tensors.get("labels"), image_shape)


def load_records(config: DataConfig) -> Truth:
    data = load(config)
    return Truth(
        inputs=data.inputs,
        labels=data.labels,
        coefficients=None,
        class_index=data.class_index,
        class_names=data.class_names,
        image_shape=data.image_shape,
        preparation=data.preparation,
    )


def control_from_rows(path: Path, how: TableOptions = TABLE, like: Truth | None = None) -> Control:
    found = read_records(path, how=how, like=like)
    return Control(found.inputs, None if bool(found.labels.isnan().any()) else found.labels)


def control_from_images(config: DataConfig, truth: Truth) -> Control:
    """Images of a source, without those that were trained on, prepared like the training records."""
    raw = DataConfig.parse(**{**config.model_dump(), "standardise": "none", "norm": "keep"})
    loaded = load(raw)
    if loaded.image_shape != truth.image_shape:
        raise UsageError(
            f"expected control images of shape {truth.image_shape}, found {loaded.image_shape}; give the same --side"
        )
    known = truth.preparation.to_pixels(truth.inputs, truth.preparation.scale).flatten(start_dim=1)
    pixels = loaded.inputs.to(known.dtype)
    seen = (torch.cdist(pixels, known, p=float("inf")) < SAME).any(dim=1)
    assert truth.image_shape is not None
    images = pixels[~seen].reshape(-1, *truth.image_shape)
    rows = prepare_alike(images, truth.preparation)[: len(truth.inputs)]
    if len(rows) == 0:
        raise UsageError("expected control images that were not trained on, found none")
    # labels of images without classes say nothing: they alternate
    return Control(rows, loaded.class_index[~seen][: len(rows)].float() if loaded.class_names else None)


def more_of_the_same(config: DataConfig, truth: Truth) -> Control | None:
    """As many images again from the source of the training records; None where it has no more."""
    doubled = {
        "samples": 2 * config.samples,
        "per_class": None if config.per_class is None else tuple(2 * count for count in config.per_class),
    }
    try:
        return control_from_images(DataConfig.parse(**{**config.model_dump(), **doubled}), truth)
    except (UsageError, ExhumeError):
        return None
