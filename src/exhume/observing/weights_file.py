"""Weights as people keep them on disk: safetensors, and PyTorch files that hold tensors and nothing else.

A file decides nothing here. A safetensors file is read only where its header agrees with its size. A PyTorch file is a
zip archive with a pickle in it, and a pickle is a program: the names that it asks for are checked against the few that
tensors need, and the settings of a training script (`argparse.Namespace`, as timm keeps them). Then torch reads it with
`weights_only=True`, which checks them once more. Archives that would grow when they are unpacked, and tensors larger
than what is stored of them, are refused.
"""

import hashlib
import pickletools
import zipfile
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from exhume.checkpoint_names import STATE_KEYS
from exhume.errors import ExhumeError
from exhume.observing.beside import Beside
from exhume.observing.checkpoint_parts import is_state_dict, parts_beside, tensors_beside, unwrapped
from exhume.regular_file import regular
from exhume.tensor_header import read_header

LARGEST_PICKLE = 64 * 2**20
WAY_OUT = "where you trust it, load it and write safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
_RESUMING = "it is for resuming training: leave it out"
_NO_WEIGHTS = {
    "training_args": "it has settings: leave it out, or write TrainingArguments.to_json_string() to training_args.json",
    "rng_state": _RESUMING,
    "random_states": _RESUMING,
    "scheduler": _RESUMING,
}
"""What transformers and accelerate leave beside the weights, by the start of its name."""
_REBUILT = {"_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter"}
_OTHERS = {
    b"\x89HDF": "an HDF5 file",
    b"GGUF": "a GGUF file",
    b"\x93NUM": "a NumPy file",
    b"\x1f\x8b\x08": "a compressed file",
    b"\x80": "a bare pickle (or a PyTorch file of before version 1.6)",
}


@dataclass(frozen=True, eq=False, repr=False)
class WeightsFile:
    """The tensors of a file under their names, what identifies the file, and what a checkpoint has beside them."""

    path: Path
    kind: str
    tensors: Mapping[str, Tensor]
    size: int
    beside: Beside = field(default_factory=Beside)

    def sha256(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(path: Path) -> WeightsFile:
    """Reads a state dict, or a checkpoint with one; anything that is not one is refused with the way out."""
    try:
        size = path.stat().st_size
        with regular(path).open("rb") as file:
            start = file.read(16)
    except OSError as problem:
        raise ExhumeError(f"expected a readable weights file {path}, found: {problem.strerror}") from problem
    beside = Beside()
    if start.startswith(b"PK"):
        kind, (tensors, beside) = "PyTorch", _read_torch(path, size)
    elif start[8:9] == b"{" or path.suffix == ".safetensors":
        kind, tensors = "safetensors", _read_safetensors(path)
    else:
        found = next((name for magic, name in _OTHERS.items() if start.startswith(magic)), "another format")
        raise ExhumeError(f"expected safetensors or a PyTorch state dict in {path}, found {found}; {WAY_OUT}")
    _check_names(tensors, path)
    if not tensors:
        raise ExhumeError(f"expected tensors in {path}, found none")
    return WeightsFile(path, kind, unwrapped(tensors), size, beside)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """Mapped from the file: what is not used is not read. The header is checked first, without torch."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    read_header(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as problem:
        raise ExhumeError(f"expected a whole safetensors file at {path}, found: {problem}") from problem


def load_checked(path: Path) -> Any:
    """What torch.save wrote, if it is tensors, numbers, texts and containers of them. Tensors are mapped."""
    _check_archive(path, path.stat().st_size)
    try:
        with torch.serialization.safe_globals([Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as problem:  # whatever is wrong in a file of unknown origin shows in many ways
        reason = " ".join(str(problem).split())[:160]
        raise ExhumeError(f"expected a PyTorch state dict in {path}, found: {reason}; {WAY_OUT}") from problem


def check_stored(tensors: Iterable[tuple[str, Tensor]], path: Path, size: int) -> None:
    """Tensors are no larger than what the file holds of them."""
    for name, tensor in tensors:
        claimed, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if claimed > stored or stored > size:
            raise ExhumeError(
                f"expected tensors that are stored in full in {path}, found {name!r} of {claimed:,} bytes "
                f"in a file of {size:,}; {WAY_OUT}"
            )


def _read_torch(path: Path, size: int) -> tuple[dict[str, Tensor], Beside]:
    loaded = load_checked(path)
    tensors, beside = _state_dict(loaded, path), parts_beside(loaded)
    check_stored((*tensors.items(), *tensors_beside(beside)), path, size)
    return tensors, beside


def _check_archive(path: Path, size: int) -> None:
    """Before torch sees it: nothing compressed, no larger than it is, and no names but those of tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any("/code/" in entry.filename for entry in entries):
                raise ExhumeError(
                    f"expected a PyTorch state dict in {path}, found a TorchScript archive, which is code; {WAY_OUT}"
                )
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ExhumeError(f"expected an archive as torch.save writes it, found {path} compressed; {WAY_OUT}")
            if sum(entry.file_size for entry in entries) > size:
                raise ExhumeError(f"expected an archive of {size:,} bytes in {path}, found one that claims more")
            pickles = [entry for entry in entries if entry.filename.rpartition("/")[2] == "data.pkl"]
            if len(pickles) != 1 or pickles[0].file_size > LARGEST_PICKLE:
                raise ExhumeError(f"expected a PyTorch state dict in {path}, found another archive; {WAY_OUT}")
            names = _names_in(archive.read(pickles[0]))
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as problem:
        found = str(problem) or "its end too early"
        raise ExhumeError(f"expected a whole PyTorch file at {path}, found: {found}; save it again") from problem
    strangers = [name for name in names if not _belongs_to_tensors(name)]
    if strangers:
        raise ExhumeError(
            f"expected tensors and nothing else in {path}, found a pickle that asks for {strangers[0]!r}: "
            f"that is code, and it was not run; {_way_out(path)}"
        )


def _way_out(path: Path) -> str:
    return next((line for start, line in _NO_WEIGHTS.items() if path.name.startswith(start)), WAY_OUT)


def _names_in(pickle: bytes) -> list[str]:
    """The names that a pickle would import, without unpickling it. Names that it puts together itself are one stranger.

    >>> import pickle
    >>> _names_in(pickle.dumps(len, protocol=2))
    ['__builtin__ len']
    """
    names = []
    for code, argument, _ in pickletools.genops(pickle):
        if code.name in ("GLOBAL", "INST"):
            names.append(str(argument))
        elif code.name in ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4"):
            names.append("a name that is put together while loading")
    return names


def _belongs_to_tensors(name: str) -> bool:
    module, _, member = name.partition(" ")
    if module == "collections":
        return member == "OrderedDict"
    if module == "argparse":
        return member == "Namespace"
    if module == "torch._utils":
        return member in _REBUILT
    if module in ("torch", "torch.storage"):
        known = getattr(torch, member, None)
        return member.endswith("Storage") or member == "Size" or isinstance(known, torch.dtype)
    return False


def _state_dict(loaded: Any, path: Path) -> dict[str, Tensor]:
    """The mapping from names to tensors, or the one inside a checkpoint."""
    if isinstance(loaded, Mapping):
        for key in STATE_KEYS:
            if is_state_dict(loaded.get(key)):
                loaded = loaded[key]
                break
    if not isinstance(loaded, Mapping):
        raise ExhumeError(
            f"expected names with tensors in {path}, found an object of type {type(loaded).__name__}; {WAY_OUT}"
        )
    strangers = [name for name, value in loaded.items() if not isinstance(name, str) or not isinstance(value, Tensor)]
    if strangers:
        raise ExhumeError(
            f"expected names with tensors in {path}, found {strangers[0]!r} that is no tensor; save the state dict "
            f"alone, or under {', '.join(STATE_KEYS)}"
        )
    return {name: value.detach() for name, value in loaded.items()}


def _check_names(tensors: Mapping[str, Tensor], path: Path) -> None:
    odd = [name for name in tensors if not name.isprintable()]
    if odd:
        raise ExhumeError(f"expected names that can be printed in {path}, found {odd[0]!r}")
