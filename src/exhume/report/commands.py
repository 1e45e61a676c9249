"""The commands that repeat a run, from what its files keep of the requests that made it."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exhume.attacks.registry import method_names
from exhume.reconstruction import Reconstruction
from exhume.requests.attack import AttackCommand
from exhume.requests.command_line import shown, shown_line, words
from exhume.requests.run_folder import EvaluateRequest, ReportRequest

_OPTIONS = {"name": "data", "label_rule": "labels", "channels": "width", "input_shape": "image_shape"}
_PRIVATE_OPTIONS = {"noise": "noise_multiplier", "steps": "private_steps"}
_NO_OPTIONS = ("recipe", "privacy", "padding", "blocks", "factory")
_ATTACK_OPTIONS = ("method", "prior", "samples", "step", "inactive_slope", "iterations", "held_out", "dtype", "seed")
"""What settings of version 0.1.0 call as the command line does."""


def commands(
    run_name: str, config: Mapping[str, Any], found: Reconstruction, reveal: bool, factory: str | None = None
) -> list[str]:
    """Training (where it was done here), attack, evaluation and report, in order."""
    run, victim = Path(run_name), str(config.get("victim") or "")
    model = victim if ":" in victim else factory
    asked = found.request or _attack_of_before(found)
    dig = _line("attack", {"run": run_name, **asked} | ({"model": model} if model else {}), ("run",))
    report = shown_line(ReportRequest(run=run, reveal=reveal, model=model))
    if not victim:
        return [dig, report]
    trained = dict(config.get("request") or _victim_of_before(config))
    trained.pop("factory", None)
    train = _line(f"train {victim}", trained | {"out": run_name})
    return [train, dig, shown_line(EvaluateRequest(run=run, model=model)), report]


def _line(command: str, kept: Mapping[str, object], places: tuple[str, ...] = ()) -> str:
    return shlex.join(["exhume", *command.split(), *words(shown(kept), places)])


def _victim_of_before(config: Mapping[str, Any]) -> dict[str, object]:
    """The options of a victim whose file keeps no request, only the configuration that came of one: all of them."""
    data, model = dict(config.get("data") or {}), dict(config.get("model") or {})
    private = {_PRIVATE_OPTIONS.get(name, name): value for name, value in (model.get("privacy") or {}).items()}
    parts = {**data, **(model.get("recipe") or {}), **model, **private, "defence": config.get("defence")}
    named = {_OPTIONS.get(name, name): value for name, value in parts.items() if name not in _NO_OPTIONS}
    values = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in named.items()}
    return {name: value for name, value in values.items() if value not in (None, "") and value is not False}


def _attack_of_before(found: Reconstruction) -> dict[str, object]:
    """The options of an attack that kept no request, as far as its settings tell them."""
    settings = found.settings | {"step": found.settings.get("step_size"), "seed": found.seed}
    settings |= {"method": found.method} if found.method in method_names() else {}
    options = {name: settings[name] for name in _ATTACK_OPTIONS if settings.get(name) is not None}
    kept = AttackCommand.from_config({**options, "run": "run"}).to_config()
    return {name: value for name, value in kept.items() if name != "run"}
