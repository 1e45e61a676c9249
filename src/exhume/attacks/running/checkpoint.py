"""A saved moment of an attack, from which the same attack goes on."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from exhume.attacks.foundation.state import State
from exhume.checkpoint_file import check_whole, write_checkpoint
from exhume.errors import ExhumeError
from exhume.files import read_tensors

KIND = "checkpoint"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    settings: dict[str, Any]
    state: State
    trace: tuple[dict[str, float], ...]
    diary: dict[str, Tensor] = field(default_factory=dict, repr=False)
    """What was noted of the way (`snapshots.py`), so that a killed attack loses none of it."""


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    columns = list(dict.fromkeys(name for line in checkpoint.trace for name in line))
    absent = float("nan")  # stages of a method note different numbers; what is noted is finite
    table = torch.tensor(
        [[line.get(name, absent) for name in columns] for line in checkpoint.trace], dtype=torch.float64
    )
    tensors = {f"state.{name}": tensor for name, tensor in checkpoint.state.tensors.items()}
    tensors |= {f"diary.{name}": tensor for name, tensor in checkpoint.diary.items()}
    counts = [name for name in columns if any(isinstance(line.get(name), int) for line in checkpoint.trace)]
    meta = {
        "settings": checkpoint.settings,
        # JSON has no infinity
        "numbers": {name: None if math.isinf(value) else value for name, value in checkpoint.state.numbers.items()},
        "columns": columns,
        "counts": counts,  # whole numbers in the trace: a table of float64 would make them decimals
    }
    tensors["trace"] = table
    write_checkpoint(path, KIND, tensors, meta)


def load_checkpoint(path: Path, settings: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint of an attack with these settings, or None: no file, or the file of another attack."""
    if not path.exists():
        return None
    file = read_tensors(path, KIND)
    try:
        if file.meta["settings"] != settings:
            return None
        check_whole(file)
        if not isinstance(file.meta["numbers"], dict) or not isinstance(file.meta["columns"], list):
            raise ValueError("the numbers of its state")
        columns, counts = file.meta["columns"], file.meta.get("counts", [])
        trace = tuple(
            {
                name: int(value) if name in counts else value
                for name, value in zip(columns, line, strict=True)
                if not math.isnan(value)
            }
            for line in file.tensors["trace"].tolist()
        )
        numbers = {name: math.inf if value is None else value for name, value in file.meta["numbers"].items()}
        state = State(_under("state.", file.tensors), numbers)
        return Checkpoint(settings, state, trace, _under("diary.", file.tensors))
    except (KeyError, TypeError, ValueError) as problem:
        raise ExhumeError(f"expected a whole checkpoint at {path}, found damage at {problem}; delete it") from problem


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
