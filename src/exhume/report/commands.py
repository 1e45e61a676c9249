"""The commands that repeat a run, from its configuration: names of folders are shortened, nothing else is."""

import shlex
from pathlib import PurePath, PureWindowsPath
from typing import Any

from exhume.attacks.certificate import HELD_OUT_FRACTION
from exhume.data.config import DEFAULT_NOISE
from exhume.data.sources import source_names
from exhume.reconstruction import Reconstruction

# configuration field -> flag, and the value that needs no flag
_DATA_FLAGS: dict[str, tuple[str, Any]] = {
    "name": ("--data", None),
    "classes": ("--classes", []),
    "per_class": ("--per-class", None),
    "dim": ("--dim", None),
    "subspace": ("--subspace", None),
    "label_rule": ("--labels", "linear"),
    "noise": ("--noise", DEFAULT_NOISE),
    "samples": ("--samples", None),
    "side": ("--side", None),
    "standardise": ("--standardise", "subset"),
    "norm": ("--norm", "sqrt-d"),
    "dtype": ("--dtype", "float32"),
}
_MODEL_FLAGS: dict[str, tuple[str, Any]] = {
    "params": ("--params", None),
    "activation": ("--activation", None),
    "bias": ("--bias", 0.0),
    "fit": ("--fit", "min-norm"),
    "ridge": ("--ridge", None),
    "steps": ("--steps", 1_000_000),
    "step_size": ("--step-size", None),
    "features": ("--features", "seed"),
    "seed": ("--seed", None),
}
_NETWORK_FLAGS: dict[str, tuple[str, Any]] = {
    "width": ("--width", None),
    "channels": ("--width", None),
    "kernel": ("--kernel", None),
    "embedding": ("--embedding", None),
    "patch": ("--patch", None),
    "depth": ("--depth", None),
    "heads": ("--heads", None),
    "head": ("--head", None),
    "input_shape": ("--image-shape", None),
    "activation": ("--activation", None),
    "outputs": ("--outputs", None),
    "loss": ("--loss", "square"),
    "initial": ("--initial", "known"),
    "features_at": ("--features-at", "trained"),
    "seed": ("--seed", None),
}
_RECIPE_FLAGS: dict[str, tuple[str, Any]] = {
    "method": ("--method", "gd"),
    "momentum": ("--momentum", 0.0),
    "weight_decay": ("--weight-decay", 0.0),
    "batch_size": ("--batch-size", None),
    "step_size": ("--step-size", None),
    "until": ("--until", None),
    "steps": ("--steps", 100_000),
}
_PRIVACY_FLAGS: dict[str, tuple[str, Any]] = {
    "epsilon": ("--epsilon", None),
    "noise": ("--noise-multiplier", None),
    "clip": ("--clip", None),
    "delta": ("--delta", 1e-5),
    "steps": ("--private-steps", 200),
}
_ATTACK_FLAGS: dict[str, tuple[str, Any]] = {
    "samples": ("--samples", None),
    "step_size": ("--step", None),
    "inactive_slope": ("--inactive-slope", 0.0),
    "iterations": ("--iterations", None),
    "held_out": ("--held-out", HELD_OUT_FRACTION),
    "dtype": ("--dtype", "float32"),
}


def commands(run_name: str, config: dict[str, Any], found: Reconstruction, reveal: bool) -> list[str]:
    """Training (where it was done here), attack, evaluation and report, in order."""
    run = shlex.quote(run_name)
    victim = str(config.get("victim") or "")
    model = f" --model {shlex.quote(victim)}" if ":" in victim else ""
    dig = f"exhume attack {run} --method {shlex.quote(found.method)}{_attack_flags(found)} --seed {found.seed}{model}"
    made_here = [_train(victim, run, config)] if victim else []
    evaluation = [f"exhume evaluate {run}{model}"] if victim else []
    return [*made_here, dig, *evaluation, f"exhume report {run}{model}{' --reveal' if reveal else ''}"]


def data_name(name: str) -> str:
    """The name of a data set, without the folders that lead to it (they may name a user).

    >>> data_name("faces"), data_name("/home/somebody/photos/")
    ('faces', 'photos')
    """
    return name if name in source_names() else PureWindowsPath(PurePath(name).name).name or "FOLDER"


def _train(victim: str, run: str, config: dict[str, Any]) -> str:
    data, model = dict(config.get("data") or {}), dict(config.get("model") or {})
    data["name"] = data_name(str(data.get("name", "")))
    if data["name"] == "sphere":
        data.pop("standardise", None)
    where = " --data-dir DIR" if data.get("data_dir") else ""
    if victim == "rf":
        sizes = _flags(model, _MODEL_FLAGS)
    else:
        sizes = _flags(model, _NETWORK_FLAGS) + _flags(dict(model.get("recipe") or {}), _RECIPE_FLAGS)
    sizes += _flags(dict(model.get("privacy") or {}), _PRIVACY_FLAGS) + (" --freeze" if model.get("freeze") else "")
    defence = f" --defence {shlex.quote(str(config['defence']))}" if config.get("defence") else ""
    return f"exhume train {shlex.quote(victim)}{_flags(data, _DATA_FLAGS)}{where}{sizes}{defence} --out {run}"


def _attack_flags(found: Reconstruction) -> str:
    return _flags(found.settings, _ATTACK_FLAGS)


def _flags(values: dict[str, Any], known: dict[str, tuple[str, Any]]) -> str:
    parts = []
    for field, (flag, default) in known.items():
        value = values.get(field)
        if value is not None and value != default:
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            parts.append(f" {flag} {shlex.quote(text)}")
    return "".join(parts)
