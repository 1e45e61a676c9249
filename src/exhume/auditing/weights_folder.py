"""Weights in a file, or in a folder as model hubs lay them out: shards are joined, the optimiser's file is beside."""

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from exhume.auditing.folder_settings import training_notes
from exhume.errors import ExhumeError, UsageError
from exhume.formats.links import own_file
from exhume.formats.reading import kind_of, read_contents
from exhume.formats.safetensors_file import check_shard, shard_files
from exhume.observing.beside import Beside
from exhume.observing.checkpoint_parts import optimiser_part
from exhume.observing.weights_file import WeightsFile, load_checked, read_weights

IN_FOLDERS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "model.onnx",
    "model.keras",
)
"""What a folder's weights are called, the first that is there."""
MOST_NAMED = 8
OPTIMISERS = ("optimizer.pt", "optimizer.bin")
"""As transformers and accelerate call it."""


def tensors_in(path: Path) -> WeightsFile:
    """Named tensors: of a safetensors or PyTorch file, of shards, or of a folder with one of them."""
    file = weights_in(path)
    kind = kind_of(file) if file.is_file() else None
    if kind in ("pickle", "not read"):
        read_contents(file, kind)  # which refuses it, with the line that converts it
    found = _joined(file) if kind == "shards" else read_weights(file)
    beside = _optimiser_beside(path, found.beside)
    return replace(found, beside=replace(beside, notes=(*beside.notes, *training_notes(path))))


def weights_in(path: Path) -> Path:
    """The file itself, or that of a folder."""
    if not path.is_dir():
        return path
    found = next((own_file(path, name) for name in IN_FOLDERS if (path / name).is_file()), None)
    if found is None:
        some = [file for file in sorted(path.glob("*.safetensors")) if file.is_file()]
        if len(some) != 1:
            below = [place.name for place in sorted(path.iterdir()) if _has_weights(place)]
            found_there = f"{len(some) or 'no'} .safetensors files"
            if below and not some:
                shown = ", ".join(name if name.isprintable() else repr(name) for name in below[:MOST_NAMED])
                found_there = f"them in its folders {shown}{', ...' if len(below) > MOST_NAMED else ''}"
            what = "folder" if below and not some else "file"
            raise UsageError(
                f"expected weights in the folder {path} ({', '.join(IN_FOLDERS[:3])}), found {found_there}; "
                f"name the {what}"
            )
        found = own_file(path, some[0].name)
    return found


def _has_weights(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink() and any((place / name).is_file() for name in IN_FOLDERS)


def _joined(index: Path) -> WeightsFile:
    """Shards as one file of weights, known by its index."""
    tensors: dict[str, Tensor] = {}
    size, part = 0, None
    for file, names in shard_files(index).items():
        part = read_weights(file)
        check_shard(index, file, names, part.tensors)
        tensors |= part.tensors
        size += part.size
    if part is None:
        raise ExhumeError(f"expected shards in {index}, found none")
    return WeightsFile(index, f"{part.kind}, in shards", tensors, size)


def _optimiser_beside(path: Path, known: Beside) -> Beside:
    """A folder's own file of the optimiser, where the weights' file has none."""
    name = next((name for name in OPTIMISERS if (path / name).is_file()), None)
    if not path.is_dir() or known.optimiser is not None or name is None:
        return known
    try:
        found = optimiser_part(load_checked(own_file(path, name)))
    except ExhumeError as problem:
        return replace(
            known, notes=(*known.notes, f"The optimiser's state beside the weights was not used: {problem}.")
        )
    return replace(known, optimiser=found)
