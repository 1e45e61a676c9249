"""A saved moment of an attack, from which the same attack goes on."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from exhume.attacks.problem import State
from exhume.errors import ExhumeError
from exhume.files import TensorFile, read_tensors, write_tensors

KIND = "checkpoint"


@runtime_checkable
class Diary(Protocol):
    """What an onlooker of an attack wrote down: kept with the checkpoint, so that a killed attack loses none of it."""

    def pages(self) -> dict[str, Tensor]: ...

    def restore(self, pages: dict[str, Tensor]) -> None: ...


@dataclass(frozen=True, eq=False)
class Checkpoint:
    settings: dict[str, Any]
    state: State
    trace: tuple[dict[str, float], ...]
    diary: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    columns = list(checkpoint.trace[-1]) if checkpoint.trace else []
    table = torch.tensor([[line[name] for name in columns] for line in checkpoint.trace], dtype=torch.float64)
    tensors = {f"state.{name}": tensor for name, tensor in checkpoint.state.tensors.items()}
    tensors |= {f"diary.{name}": tensor for name, tensor in checkpoint.diary.items()}
    counts = [name for name in columns if isinstance(checkpoint.trace[-1][name], int)]
    meta = {
        "settings": checkpoint.settings,
        "numbers": checkpoint.state.numbers,
        "columns": columns,
        "counts": counts,  # whole numbers in the trace: a table of float64 would make them decimals
    }
    tensors["trace"] = table
    write_tensors(path, KIND, tensors, {**meta, "digest": _digest(tensors, meta)})


def load_checkpoint(path: Path, settings: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint of an attack with these settings, or None: no file, or the file of another attack."""
    if not path.exists():
        return None
    file = read_tensors(path, KIND)
    try:
        if file.meta["settings"] != settings:
            return None
        _check_whole(file)
        columns, counts = file.meta["columns"], file.meta.get("counts", [])
        trace = tuple(
            {name: int(value) if name in counts else value for name, value in zip(columns, line, strict=True)}
            for line in file.tensors["trace"].tolist()
        )
        state = State(_under("state.", file.tensors), file.meta["numbers"])
        return Checkpoint(settings, state, trace, _under("diary.", file.tensors))
    except (KeyError, TypeError, ValueError) as problem:
        raise ExhumeError(f"expected a whole checkpoint at {path}, found damage at {problem}; delete it") from problem


def _check_whole(file: TensorFile) -> None:
    """A method trusts its state, so nothing of it may have changed; files of the first form have no digest."""
    names = ("settings", "numbers", "columns", "counts")
    told: dict[str, Any] = {name: file.meta[name] for name in names if name in file.meta}
    if "digest" in file.meta and file.meta["digest"] != _digest(file.tensors, told):
        raise ValueError("numbers that are not those that were saved")
    if not isinstance(told["numbers"], dict) or not isinstance(told["columns"], list):
        raise ValueError("the numbers of its state")


def _digest(tensors: dict[str, Tensor], meta: dict[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
