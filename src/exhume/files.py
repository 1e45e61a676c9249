"""Writing files so that they are whole or absent, and reading tensors with one-line errors.

Every tensor file that exhume writes is a safetensors file whose metadata holds one JSON text under `exhume`: the kind
of file, the version of its layout, and what belongs to the kind. Nothing here ever unpickles.
"""

import csv
import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, contiguous_format

from exhume.errors import ExhumeError
from exhume.leftovers import Claim, remove_leftovers
from exhume.regular_file import regular
from exhume.strict_json import parse_json
from exhume.tensor_header import MOST_DIMENSIONS, read_header

SCHEMA = 1
_METADATA_KEY = "exhume"
PRIVATE_KINDS = (
    *("truth", "known-samples", "reconstruction", "snapshots", "checkpoint", "embedding-span"),
    "training-checkpoint",  # momentum is gradients of training data
)
"""Training data, or what was made of it: for nobody but the owner to read, whatever the umask."""
_OWNER_ONLY = 0o600


@contextmanager
def replacing(path: Path, folder: bool = False, mode: int = 0o666) -> Iterator[Path]:
    """Hands out a temporary file (or `folder`) beside `path`; renames it to `path` on success, else removes it.

    The parent folder must exist or be creatable. What killed processes left in it is removed on the way. A file has the
    `mode`, less the umask, before anything is written to it.
    """
    claim = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent)
        claim = Claim.beside(path, folder, mode)
        yield claim.path
        claim.path.replace(path)
    except OSError as problem:
        raise ExhumeError(
            f"expected a writable place for {path}, found: {problem.strerror or problem}; "
            "free some space, change its permissions or choose another folder"
        ) from problem
    finally:
        if claim is not None:
            claim.release()


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def table_for_the_owner(path: Path) -> Iterator[Any]:
    """A CSV writer whose file nobody but the owner can read, whatever the umask."""
    with replacing(path, mode=_OWNER_ONLY) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield csv.writer(file)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(regular(path).read_bytes())
    except OSError as problem:
        raise ExhumeError(f"expected a readable file {path}, found: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise ExhumeError(f"expected JSON in {path}, found something else: {problem}") from problem
    if not isinstance(value, dict):
        raise ExhumeError(f"expected a JSON object in {path}, found {type(value).__name__}")
    return value


def check_schema(content: Mapping[str, Any], path: Path) -> None:
    """Refuses a file of a layout that this version does not know. Files without a number are of the first layout."""
    found = content.get("schema", 1)
    if type(found) is not int or not 1 <= found <= SCHEMA:
        raise ExhumeError(
            f"expected schema {SCHEMA} in {path}, found {str(found)[:40]!r}; use the exhume version that wrote it"
        )


@dataclass(frozen=True)
class TensorFile:
    """The content of one of exhume's own tensor files."""

    tensors: dict[str, Tensor] = field(repr=False)
    meta: dict[str, Any]


def write_tensors(path: Path, kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    header = json.dumps({"kind": kind, "schema": SCHEMA, **meta}, allow_nan=False)
    # copies, because safetensors refuses tensors that share memory, which those of an attack's state may do
    own = {name: tensor.detach().cpu().clone(memory_format=contiguous_format) for name, tensor in tensors.items()}
    with replacing(path, mode=_OWNER_ONLY if kind in PRIVATE_KINDS else 0o666) as temporary:
        try:
            with _apart(temporary) as content:
                save_file(own, content, metadata={_METADATA_KEY: header})
                content.chmod(stat.S_IMODE(temporary.stat().st_mode))  # safetensors' own files are the owner's alone
                content.replace(temporary)
        except SafetensorError as problem:  # how safetensors reports a full disk or a folder that is gone
            raise OSError(0, str(problem)) from problem


@contextmanager
def _apart(path: Path) -> Iterator[Path]:
    """A place for a library that makes temporary files of its own, whose names nobody knows: they end with the folder.

    Nobody else may look into it, because such a file may be readable by all before it is whole.
    """
    claim = Claim.beside(path, folder=True)
    try:
        claim.path.chmod(0o700)
        yield claim.path / path.name
    finally:
        claim.release()


def read_tensors(path: Path, kind: str) -> TensorFile:
    """Reads a file written by `write_tensors`; one line if it is missing, damaged, of another kind or too new."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ExhumeError(f"expected the {kind} file {path}, found no such file")
    read_header(path)  # stricter than the library: keys that come twice, bytes that belong to nothing
    try:
        with safe_open(path, framework="pt") as file:
            header = parse_json((file.metadata() or {}).get(_METADATA_KEY, "null"))
            # copies, because matrix products round differently where memory is not aligned as torch's own is
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
        if any(tensor.ndim > MOST_DIMENSIONS for tensor in tensors.values()):
            raise ValueError("a tensor of more dimensions than torch can compute with")
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as problem:
        raise ExhumeError(f"expected a whole safetensors file at {path}, found: {problem}") from problem
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = repr(header.get("kind")) if isinstance(header, dict) else "a file that exhume did not write"
        raise ExhumeError(f"expected {path} to hold a {kind}, found {found}")
    check_schema(header, path)
    return TensorFile(tensors, header)


def read_any_tensors(path: Path, missing: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file of somebody else's. `missing` is the complaint if there is no such file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise ExhumeError(missing)
    read_header(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as problem:
        raise ExhumeError(f"expected a whole safetensors file at {path}, found: {problem}") from problem


def require_tensors(file: TensorFile, path: Path, *names: str) -> None:
    missing = [name for name in names if name not in file.tensors]
    if missing:
        raise ExhumeError(f"expected the tensors {', '.join(names)} in {path}, found none named {', '.join(missing)}")
