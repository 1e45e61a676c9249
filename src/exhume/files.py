"""Writing files so that they are whole or absent, and reading tensors with one-line errors.

Every tensor file that exhume writes is a safetensors file whose metadata holds one JSON text under `exhume`: the kind
of file, the version of its layout, and what belongs to the kind. Nothing here ever unpickles.
"""

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, contiguous_format

from exhume.errors import ExhumeError

SCHEMA = 1
_METADATA_KEY = "exhume"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Hands out a temporary name beside `path`; renames it to `path` on success and removes it on any failure.

    Works for a file and for a folder: the body creates one or the other. The parent folder must exist or be creatable.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as problem:
        raise ExhumeError(
            f"expected a writable place for {path}, found: {problem.strerror or problem}; "
            "free some space, change its permissions or choose another folder"
        ) from problem
    finally:
        with suppress(OSError):  # a name that cannot exist (below a file, too long) has left nothing to remove
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ExhumeError(f"expected a readable file {path}, found: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise ExhumeError(f"expected JSON in {path}, found something else: {problem}") from problem
    if not isinstance(value, dict):
        raise ExhumeError(f"expected a JSON object in {path}, found {type(value).__name__}")
    return value


@dataclass(frozen=True)
class TensorFile:
    """The content of one of exhume's own tensor files."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


def write_tensors(path: Path, kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    header = json.dumps({"kind": kind, "schema": SCHEMA, **meta}, allow_nan=False)
    # copies, because safetensors refuses tensors that share memory, which those of an attack's state may do
    own = {name: tensor.detach().cpu().clone(memory_format=contiguous_format) for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(own, temporary, metadata={_METADATA_KEY: header})
        except SafetensorError as problem:  # how safetensors reports a full disk or a folder that is gone
            raise OSError(0, str(problem)) from problem


def read_tensors(path: Path, kind: str) -> TensorFile:
    """Reads a file written by `write_tensors`; one line if it is missing, damaged, of another kind or too new."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ExhumeError(f"expected the {kind} file {path}, found no such file")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(_METADATA_KEY, "null"))
            # copies, because matrix products round differently where memory is not aligned as torch's own is
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as problem:
        raise ExhumeError(f"expected a whole safetensors file at {path}, found: {problem}") from problem
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = repr(header.get("kind")) if isinstance(header, dict) else "a file that exhume did not write"
        raise ExhumeError(f"expected {path} to hold a {kind}, found {found}")
    if header.get("schema") != SCHEMA:
        raise ExhumeError(
            f"expected schema {SCHEMA} in {path}, found {header.get('schema')!r}; use the exhume version that wrote it"
        )
    return TensorFile(tensors, header)


def require_tensors(file: TensorFile, path: Path, *names: str) -> None:
    missing = [name for name in names if name not in file.tensors]
    if missing:
        raise ExhumeError(f"expected the tensors {', '.join(names)} in {path}, found none named {', '.join(missing)}")
