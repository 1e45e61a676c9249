"""The parts of a training checkpoint: the weights, the optimiser's state, a moving average of the weights.

A checkpoint comes from a file of unknown origin. Nothing of it is taken over as it is: each part is built again from
tensors and plain numbers that are where torch puts them, and anything else is left behind and said.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from exhume.checkpoint_names import AVERAGE_KEYS, OPTIMISER_KEYS, STATE_KEYS, WRAPPERS
from exhume.observing.beside import Beside

COUNTERS = ("n_averaged", "step", "initted", "decay", "num_updates", "updates")
"""What helpers for moving averages store beside the average itself."""


def is_state_dict(value: Any) -> bool:
    """Names with tensors, at least one."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())
    )


def parts_beside(loaded: Any) -> Beside:
    """What lies beside the weights in a checkpoint that was loaded; nothing in a plain state dict."""
    if not isinstance(loaded, Mapping) or is_state_dict(loaded):
        return Beside()
    notes = []
    kept: dict[str, Any] = {}
    for what, keys, read in (
        ("optimiser's state", OPTIMISER_KEYS, optimiser_part),
        ("moving average", AVERAGE_KEYS, _average),
    ):
        key = next((key for key in keys if loaded.get(key) is not None), None)
        if key is not None:
            kept[what] = read(loaded[key])
            if kept[what] is None:
                notes.append(f"The {what} in the file ({key!r}) was not used: it is not of the form that torch writes.")
    return Beside(kept.get("optimiser's state"), kept.get("moving average"), tuple(notes))


def tensors_beside(beside: Beside) -> Iterator[tuple[str, Tensor]]:
    """All of them, to be checked against the file."""
    yield from (beside.average or {}).items()
    for number, values in (beside.optimiser or {"state": {}})["state"].items():
        yield from ((f"{name} of parameter {number}", value) for name, value in values.items())


def unwrapped(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """
    >>> list(unwrapped({"module.fc.weight": Tensor()}))
    ['fc.weight']
    """
    for prefix in WRAPPERS:
        if tensors and all(name.startswith(prefix) for name in tensors):
            return unwrapped({name.removeprefix(prefix): tensor for name, tensor in tensors.items()})
    return tensors


def _average(value: Any) -> dict[str, Tensor] | None:
    """A state dict, perhaps one level down, with the counters of its helper left out."""
    if isinstance(value, Mapping):
        inside = next((value[key] for key in ("shadow", "module", *STATE_KEYS) if is_state_dict(value.get(key))), value)
        plain = {name: tensor for name, tensor in inside.items() if name not in COUNTERS}
        if any(isinstance(name, str) and name.startswith("ema_model.") for name in plain):  # beside the raw weights
            plain = {name: tensor for name, tensor in plain.items() if str(name).startswith("ema_model.")}
        if is_state_dict(plain) and all(name.isprintable() for name in plain):
            return unwrapped({name: tensor.detach() for name, tensor in plain.items()})
    return None


def optimiser_part(value: Any) -> dict[str, Any] | None:
    """{"state": {number: {name: tensor}}, "param_groups": [{"params": [number, ...]}, ...]}, and nothing else.

    Lightning keeps a list of them, with one optimiser mostly.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping):
        return None
    state, groups = value.get("state"), value.get("param_groups")
    if not isinstance(state, Mapping) or not isinstance(groups, list):
        return None
    listed = []
    for group in groups:
        numbers = group.get("params") if isinstance(group, Mapping) else None
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            return None
        names = group.get("param_names")
        named = isinstance(names, list) and len(names) == len(numbers) and all(isinstance(name, str) for name in names)
        listed.append({"params": list(numbers)} | ({"param_names": list(names)} if named else {}))
    kept: dict[int, dict[str, Tensor]] = {}
    for number, values in state.items():
        if type(number) is not int or not isinstance(values, Mapping):
            return None
        kept[number] = {
            name: tensor.detach()
            for name, tensor in values.items()
            if isinstance(name, str) and name.isprintable() and isinstance(tensor, Tensor)
        }
    return {"state": kept, "param_groups": listed}
