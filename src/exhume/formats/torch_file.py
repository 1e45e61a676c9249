"""PyTorch checkpoints through the one safe way in, flattened: tensors and plain values under dotted names."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.formats.contents import Contents, StoredArray
from exhume.observing.weights_file import check_stored, load_checked

DEEPEST = 16
MOST_PARTS = 1_000_000


def read_torch(path: Path) -> Contents:
    loaded = load_checked(path)
    arrays: dict[str, StoredArray] = {}
    values: dict[str, Any] = {}
    tensors: list[tuple[str, Tensor]] = []
    for name, value in _parts(loaded, path):
        if isinstance(value, Tensor):
            tensors.append((name, value))
        else:
            values[name] = value
    check_stored(tensors, path, path.stat().st_size)
    for name, tensor in tensors:
        shown = str(tensor.dtype).removeprefix("torch.")
        arrays[name] = StoredArray(name, tuple(tensor.shape), shown, _reader(tensor.detach()))
    return Contents("PyTorch", arrays, values=values)


def _parts(loaded: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Depth first, by a list and no recursion; a container that contains itself is deeper than any that is read."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), loaded)]
    count = 0
    while waiting:
        place, value = waiting.pop()
        count += 1
        if count > MOST_PARTS or len(place) > DEEPEST:
            raise ExhumeError(
                f"expected a checkpoint of names, tensors and numbers in {path}, found one that goes on and on: more "
                f"than {MOST_PARTS if count > MOST_PARTS else DEEPEST:,} {'parts' if count > MOST_PARTS else 'levels'}"
            )
        if isinstance(value, Namespace):
            value = vars(value)
        if isinstance(value, Mapping):
            waiting.extend(((*place, _word(key)), inner) for key, inner in reversed(list(value.items())))
        elif isinstance(value, list | tuple):
            waiting.extend(((*place, str(key)), inner) for key, inner in reversed(list(enumerate(value))))
        elif isinstance(value, Tensor) or value is None or isinstance(value, str | int | float | bool):
            yield ".".join(place), value


def _word(key: Any) -> str:
    word = str(key)[:200]
    return word if word.isprintable() else repr(word)


def _reader(tensor: Tensor) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        import torch

        if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
            return tensor.float().numpy()
        return tensor.numpy()

    return read
