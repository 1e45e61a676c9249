"""config.json and summary.json of a run, checked where they come in: they may be of any version and from anywhere."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.files import check_schema, read_json

LARGEST = 1e300
_NUMBERS = (
    *("p", "d", "n", "ratio", "training_loss", "steps", "floor", "train_seed", "train_seconds", "epsilon", "delta"),
    *("loss", "held_out_loss", "held_out_rows", "samples_found", "samples_trusted", "iterations", "passes", "seconds"),
    *("peak_memory_mb", "seed", "error", "signed_error", "chance_error", "recovered_fraction", "span_residual"),
    *("recognised", "mean_psnr", "mean_ssim", "low_resolution_cosine", "low_resolution_recovered"),
)
_TEXTS = ("victim", "activation", "method", "outcome", "advice", "initial", "defence", "data", "subspace", "prior")
_PARTS = ("request", "data", "model", "attack", "settings", "versions")


def read_summary(path: Path) -> dict[str, Any]:
    """Keys that are not known are kept as they are."""
    summary = read_json(path)
    check_schema(summary, path)
    _check(summary, _NUMBERS, is_number, "a number", path)
    _check(summary, _TEXTS, _is_text, "a text", path)
    return summary


def read_config(path: Path) -> dict[str, Any]:
    config = read_json(path)
    check_schema(config, path)
    _check(config, _PARTS, _is_part, "an object", path)
    _check(config, ("victim", "defence"), _is_text, "a text", path)
    model = config.get("model") or {}
    _check(model, ("recipe", "privacy"), _is_part, "an object", path)
    _check(model, ("ridge",), is_number, "a number", path)
    _check(model.get("recipe") or {}, ("weight_decay", "momentum"), is_number, "a number", path)
    _check(config.get("data") or {}, ("name",), _is_text, "a text", path)
    _check(config.get("versions") or {}, list(config.get("versions") or {}), _is_text, "a text", path)
    return config


def is_number(value: Any) -> bool:
    """
    >>> [is_number(value) for value in (1, 2.5, True, "1", float("nan"), 10**400)]
    [True, True, False, False, False, False]
    """
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict)


def _check(
    values: Mapping[str, Any], keys: tuple[str, ...] | list[str], fits: Callable[[Any], bool], kind: str, path: Path
) -> None:
    for key in keys:
        value = values.get(key)
        if value is not None and not fits(value):
            raise ExhumeError(f"expected {kind} as {key!r} in {path}, found {str(value)[:80]!r}; make the run again")
