"""Checkpoint files: tensors and numbers from which work goes on, with a digest that tells whether any of them changed.

Whoever goes on from a checkpoint trusts it blindly, so one changed bit would be a wrong result that nobody sees.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from exhume.files import TensorFile, write_tensors
from exhume.raw_bytes import raw_bytes

_OF_THE_FILE = ("kind", "schema", "digest")


def write_checkpoint(path: Path, kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    write_tensors(path, kind, tensors, {**meta, "digest": _digest(tensors, meta)})


def check_whole(file: TensorFile) -> None:
    """Raises ValueError where anything is not as it was written; files of the first form have no digest."""
    described = {name: value for name, value in file.meta.items() if name not in _OF_THE_FILE}
    if "digest" in file.meta and file.meta["digest"] != _digest(file.tensors, described):
        raise ValueError("numbers that are not those that were saved")


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()
