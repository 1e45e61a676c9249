"""Records that a user holds against a model: a folder of images, or rows in a safetensors file, arrays or a table.

Images have to become rows the way the model's own inputs did: x = (pixels − mean) / std, then, if the model wants it,
brought to norm √d. Rows of a file are taken as they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.data.dataset import Preparation, downsample
from exhume.data.folder import SUFFIXES
from exhume.data.image_file import as_rgb, read_image
from exhume.data.tables.reading import SUFFIXES as SUFFIXES_OF_TABLES
from exhume.data.tables.reading import read_table
from exhume.errors import ExhumeError, UsageError
from exhume.files import read_any_tensors
from exhume.formats.npy import read_npy, read_npz

ROW_NAMES = ("embeddings", "inputs")
MEMBER_NAME, LABELS_NAME = "member", "labels"
ARRAYS = (".npz", ".npy")


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """`rows` as inputs or embeddings; `names` to tell them by; `members` where the file says which were trained on.

    `told` are labels as the file has them, numbers or texts; `labels` are those that a head has outputs for.
    """

    rows: Float[Tensor, "m columns"] = field(repr=False)
    names: tuple[str, ...]
    members: Bool[Tensor, " m"] | None = None
    stated: tuple[float | str, ...] | None = None
    labels: Float[Tensor, " m"] | None = None

    def part(self, kept: Bool[Tensor, " m"]) -> "Records":
        chosen = [at for at, keep in enumerate(kept.tolist()) if keep]
        return Records(
            self.rows[kept],
            tuple(self.names[at] for at in chosen),
            None if self.members is None else self.members[kept],
            None if self.stated is None else tuple(self.stated[at] for at in chosen),
            None if self.labels is None else self.labels[kept],
        )

    def labelled(self, classes: Sequence[float | str | bool] | None, what: str) -> "Records":
        """With labels as numbers of outputs, by the classes of the model; without classes as they are."""
        if self.stated is None:
            return self
        if classes is None:
            if any(isinstance(label, str) for label in self.stated):
                raise UsageError(f"expected numbers as labels of {what}, found texts")
            return replace(self, labels=torch.tensor([float(label) for label in self.stated], dtype=torch.float64))
        places = {_label(label): float(at) for at, label in enumerate(classes)}
        strange = next((label for label in self.stated if _label(label) not in places), None)
        if strange is not None:
            some = ", ".join(map(str, classes[:8]))
            raise UsageError(f"expected labels of {what} among the classes {some}, found {strange!r}")
        return replace(self, labels=torch.tensor([places[_label(label)] for label in self.stated], dtype=torch.float64))


def _label(label: float | str | bool) -> float | str:
    """True, 1 and 1.0 are one label."""
    return label if isinstance(label, str) else float(label)


def load_records(
    path: Path,
    image_shape: tuple[int, int, int] | None = None,
    preparation: Preparation | None = None,
    label: str | None = None,
    members: str | None = None,
) -> Records:
    """Records of a file or a folder. For images it takes the shape that the model sees and how they are prepared.

    Of a table, `label` and `members` are columns that are no input.
    """
    is_table = path.is_file() and path.suffix.lower() in SUFFIXES_OF_TABLES
    if members is not None and not is_table:
        raise UsageError(f"expected a file of members, or a column of a table of candidates, found no {members}")
    if path.is_dir():
        return _from_folder(path, image_shape, preparation)
    if path.suffix == ".safetensors":
        return _from_tensors(read_any_tensors(path, f"expected records in {path}, found no such file"), path)
    if path.is_file() and path.suffix.lower() in ARRAYS:
        found = (read_npz if path.suffix.lower() == ".npz" else read_npy)(path).arrays
        arrays = {name: torch.from_numpy(array.read().copy()) for name, array in found.items()}
        return _from_tensors(arrays, path)
    if is_table:
        return _from_table(path, label, members)
    what = "no such file or folder" if not path.exists() else "a file of another kind"
    raise UsageError(
        f"expected a folder of images or a .safetensors file, arrays (.npz, .npy) or a table (.csv, .parquet), found "
        f"{path}: {what}"
    )


def _from_table(path: Path, label: str | None, members: str | None) -> Records:
    table, stated, marked = read_table(path), None, None
    if members is not None:
        table, cells = table.without(members)
        if not set(cells) <= {0.0, 1.0}:
            raise UsageError(f"expected 0 or 1 in the column {members!r} of {path}, found other values")
        marked = torch.tensor([cell == 1 for cell in cells])
    if label is not None:
        table, stated = table.without(label)
    texts = next((column.name for column in table.columns if column.categories is not None), None)
    if texts is not None:
        raise UsageError(f"expected numbers as the model reads them in {path}, found texts in the column {texts!r}")
    rows = table.numbers()
    return Records(rows, tuple(str(index) for index in range(len(rows))), marked, stated)


def _from_tensors(tensors: dict[str, Tensor], path: Path) -> Records:
    matrices = [name for name, tensor in tensors.items() if tensor.ndim >= 2]
    name = next((name for name in ROW_NAMES if name in matrices), matrices[0] if len(matrices) == 1 else None)
    if name is None:
        found = ", ".join(sorted(tensors)[:8]) or "no tensor"
        raise ExhumeError(f"expected a tensor named {' or '.join(ROW_NAMES)} in {path}, found {found}")
    rows = tensors[name].flatten(start_dim=1)
    if not rows.is_floating_point() or len(rows) == 0:
        kind = str(rows.dtype).removeprefix("torch.")
        raise ExhumeError(f"expected rows in floating point in {path}, found {kind} of shape {list(rows.shape)}")
    if not torch.isfinite(rows).all():
        raise ExhumeError(f"expected finite numbers in {path}, found NaN or infinite ones")
    members = tensors.get(MEMBER_NAME)
    if members is not None and members.shape != (len(rows),):
        raise ExhumeError(f"expected one {MEMBER_NAME} per row in {path}, found shape {list(members.shape)}")
    labels = tensors.get(LABELS_NAME)
    if labels is not None and labels.shape != (len(rows),):
        raise ExhumeError(f"expected one of the {LABELS_NAME} per row in {path}, found shape {list(labels.shape)}")
    names = tuple(str(index) for index in range(len(rows)))
    stated = None if labels is None else tuple(labels.double().tolist())
    return Records(rows, names, None if members is None else members != 0, stated)


def _from_folder(folder: Path, image_shape: tuple[int, int, int] | None, preparation: Preparation | None) -> Records:
    if image_shape is None or preparation is None:
        raise UsageError(
            f"expected a model that reads images for the folder {folder}, found none; give embeddings in a file"
        )
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
    if not paths:
        raise UsageError(f"expected images ({', '.join(SUFFIXES)}) in {folder}, found none")
    pixels = torch.stack([_in_shape(read_image(path), image_shape, path) for path in paths])
    rows = prepare_alike(pixels, preparation)
    return Records(rows, tuple(str(path.relative_to(folder)) for path in paths))


def _in_shape(image: Float[Tensor, "c h w"], shape: tuple[int, int, int], path: Path) -> Float[Tensor, "_ _ _"]:
    channels, height, width = shape
    if len(image) == 1 and channels == 3:
        image = as_rgb(image)
    if len(image) == 3 and channels == 1:
        image = image.mean(dim=0, keepdim=True)
    larger = height == width and image.shape[1] == image.shape[2] and image.shape[1] % height == 0
    if image.shape[1:] != (height, width) and larger:
        image = downsample(image[None], height)[0]
    if tuple(image.shape) != shape:
        found = "x".join(map(str, image.shape))
        raise UsageError(f"expected images of {channels}x{height}x{width} (or a multiple), found {found} in {path}")
    return image


def prepare_alike(pixels: Float[Tensor, "m c h w"], preparation: Preparation) -> Float[Tensor, "m d"]:
    """Rows of other images, with the mean and standard deviation (and the norm) of the model's own."""
    mean, std = preparation.mean.to(pixels)[:, None, None], preparation.std.to(pixels)[:, None, None]
    rows = ((pixels - mean) / std).flatten(start_dim=1)
    if preparation.norm == "sqrt-d":
        norms = rows.norm(dim=1, keepdim=True)
        rows = rows * (math.sqrt(rows.shape[1]) / torch.where(norms > 0, norms, 1.0))
    return rows.to(preparation.mean.dtype)
