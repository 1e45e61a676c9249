"""A saved moment of an attack, from which the same attack goes on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from exhume.attacks.problem import State
from exhume.errors import ExhumeError
from exhume.files import read_tensors, write_tensors

KIND = "checkpoint"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    settings: dict[str, Any]
    state: State
    trace: tuple[dict[str, float], ...]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    columns = list(checkpoint.trace[-1]) if checkpoint.trace else []
    table = torch.tensor([[line[name] for name in columns] for line in checkpoint.trace], dtype=torch.float64)
    tensors = {f"state.{name}": tensor for name, tensor in checkpoint.state.tensors.items()}
    meta = {"settings": checkpoint.settings, "numbers": checkpoint.state.numbers, "columns": columns}
    write_tensors(path, KIND, {**tensors, "trace": table}, meta)


def load_checkpoint(path: Path, settings: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint of an attack with these settings, or None: no file, or the file of another attack."""
    if not path.exists():
        return None
    file = read_tensors(path, KIND)
    try:
        if file.meta["settings"] != settings:
            return None
        tensors = {
            name.removeprefix("state."): value for name, value in file.tensors.items() if name.startswith("state.")
        }
        trace = tuple(dict(zip(file.meta["columns"], line, strict=True)) for line in file.tensors["trace"].tolist())
        return Checkpoint(settings, State(tensors, file.meta["numbers"]), trace)
    except (KeyError, ValueError) as problem:
        raise ExhumeError(f"expected a whole checkpoint at {path}, found damage at {problem}; delete it") from problem
