"""The one way in: what a file is, by its first bytes and its name, and its contents."""

from pathlib import Path

from exhume.errors import ExhumeError
from exhume.formats.archive import open_archive
from exhume.formats.contents import Contents
from exhume.formats.not_read import not_read, refuse_not_read
from exhume.formats.pickles import MOST_BYTES, is_pickle, read_program, refuse_pickle
from exhume.regular_file import regular

PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
INDICES = (".safetensors.index.json", ".bin.index.json")
_COMPRESSED = (b"\x1f\x8b", b"x\x9c", b"BZh", b"\xfd7zXZ", b"\x04\x22\x4d\x18")
_MODELS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".keras", ".h5", ".hdf5", ".onnx", ".skops", ".npy", ".npz")

SUFFIXES = (*_MODELS, *PICKLES)
"""Names of files that are looked into, for those who choose files by their names."""


def kind_of(path: Path) -> str | None:
    """safetensors, shards, torch, keras, h5, onnx, skops, npy, npz or pickle; "not read": a model of another tool.

    None for the rest.
    """
    start = _start(path)
    suffix = path.suffix.lower()
    if path.name.endswith(INDICES):
        return "shards"
    if start.startswith(b"PK"):
        return _kind_of_archive(path, suffix)
    if start.startswith(b"\x89HDF"):
        return "h5"
    if start.startswith(b"\x93NUMPY"):
        return "npy"
    if suffix == ".safetensors" or (start[8:10] == b'{"' and suffix in ("", *_MODELS)):
        return "safetensors"
    if suffix == ".onnx":
        return "onnx"
    if is_pickle(start) or suffix in PICKLES or (suffix in (".gz", ".z") and start.startswith(_COMPRESSED)):
        return "pickle"
    return None if not_read(path, start) is None else "not read"


def _start(path: Path) -> bytes:
    try:
        with regular(path).open("rb") as file:
            return file.read(16)
    except OSError as problem:
        raise ExhumeError(f"expected a readable file {path}, found: {problem.strerror}") from problem


def _kind_of_archive(path: Path, suffix: str) -> str | None:
    if suffix in (".npz", ".skops", ".keras"):
        return suffix[1:]
    with open_archive(path) as archive:
        if any(name.endswith("/data.pkl") for name in archive.entries):
            return "torch"
        if archive.entries and all(name.endswith(".npy") for name in archive.entries):
            return "npz"
        if "model.weights.h5" in archive.entries:
            return "keras"
        if "schema.json" in archive.entries:
            return "skops"
    return "torch" if suffix in (".pt", ".pth", ".ckpt", ".bin") else None


def read_contents(path: Path, kind: str | None = None) -> Contents:
    """Everything in a file that can be had without running it; an `ExhumeError` of one line for anything else."""
    match kind or kind_of(path):
        case "safetensors":
            from exhume.formats.safetensors_file import read_safetensors

            return read_safetensors(path)
        case "shards":
            from exhume.formats.safetensors_file import read_shards

            return read_shards(path, read_contents)
        case "torch":
            from exhume.formats.torch_file import read_torch

            return read_torch(path)
        case "keras":
            from exhume.formats.keras_file import read_keras

            return read_keras(path)
        case "h5":
            from exhume.formats.keras_file import read_h5

            return read_h5(path)
        case "onnx":
            from exhume.formats.onnx_file import read_onnx

            return read_onnx(path)
        case "skops":
            from exhume.formats.skops_file import read_skops

            return read_skops(path)
        case "npy":
            from exhume.formats.npy import read_npy

            return read_npy(path)
        case "npz":
            from exhume.formats.npy import read_npz

            return read_npz(path)
        case "pickle":
            with path.open("rb") as file:
                raise refuse_pickle(path, read_program(file.read(MOST_BYTES)).names)
    known = refuse_not_read(path, _start(path))
    if known is not None:
        raise known
    raise ExhumeError(
        f"expected a model file at {path}, found another kind; exhume reads safetensors, PyTorch, ONNX, Keras, skops, "
        "npy and npz"
    )
