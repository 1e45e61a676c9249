"""The runs that lie in a folder: all of them, those that meet conditions, where they differ, and groups of them."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError, UsageError
from exhume.experiments.documents import read_config, read_summary

Runs = dict[str, dict[str, Any]]
_CONDITION = re.compile(r"\s*([\w.]+)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*$")


def list_runs(folder: Path) -> Runs:
    """The summary of every run directly below a folder, by name. Hidden (unfinished) folders are passed over.

    In the folder of a sweep the runs are one deeper, and those that failed have their reason.
    """
    if not folder.is_dir():
        raise ExhumeError(f"expected a folder of runs at {folder}, found none")
    if (folder / "results.csv").is_file() and (folder / "runs").is_dir():
        folder = folder / "runs"
    found: Runs = {}
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if (path / "summary.json").is_file():
            found[path.name] = read_summary(path / "summary.json")
        elif (path / "failed.json").is_file():
            found[path.name] = {"outcome": "failed", **read_summary(path / "failed.json")}
    return found


def with_settings(folder: Path, found: Runs) -> Runs:
    """The same with what each run was told, as data.KEY, model.KEY and attack.KEY, and how it ended: `status`."""
    below = folder / "runs" if (folder / "results.csv").is_file() and (folder / "runs").is_dir() else folder
    described: Runs = {}
    for name, summary in found.items():
        path = below / name / "config.json"
        config = read_config(path) if path.is_file() else {}
        parts = {part: config[part] for part in ("data", "model", "attack") if isinstance(config.get(part), dict)}
        status = "failed" if summary.get("outcome") == "failed" else "done"
        defence = {"defence": config["defence"]} if "defence" in config else {}  # of a run that failed
        described[name] = {"status": status} | defence | summary | _flat(parts)
    return described


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """
    >>> _flat({"model": {"recipe": {"steps": 3}, "seed": 0}})
    {'model.recipe.steps': 3, 'model.seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return flat


@dataclass(frozen=True)
class Condition:
    key: str
    relation: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """
        >>> Condition.parse("ratio >= 2")
        Condition(key='ratio', relation='>=', value='2')
        """
        parsed = _CONDITION.match(text)
        if not parsed or not parsed[3]:
            raise UsageError(f"expected a condition like outcome=recovered or 'ratio>2', found {text!r}")
        if parsed[2] not in ("=", "!=") and _number(parsed[3]) is None:
            raise UsageError(f"expected a number after {parsed[2]} in a condition, found {parsed[3]!r}")
        return cls(parsed[1], parsed[2], parsed[3])

    def holds(self, run: Mapping[str, Any]) -> bool:
        """A run that does not have the value meets no condition but that it be another one."""
        value = run.get(self.key)
        if self.relation in ("=", "!="):
            return self._equals(value) == (self.relation == "=")
        number, limit = _number(value), _number(self.value)
        if number is None or limit is None:
            return False
        return {
            ">": number > limit,
            "<": number < limit,
            ">=": number >= limit,
            "<=": number <= limit,
        }[self.relation]

    def _equals(self, value: Any) -> bool:
        number, wanted = _number(value), _number(self.value)
        if number is not None and wanted is not None:
            return math.isclose(number, wanted, rel_tol=1e-9)
        written = {None: "none", True: "true", False: "false"}.get(value, value) if _plain(value) else value
        return str(written).lower() == self.value.lower()


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def select(found: Runs, conditions: Sequence[Condition]) -> Runs:
    """The runs that meet all conditions. A key that no run has is refused: it is a slip of the pen."""
    known = {key for run in found.values() for key in run}
    for condition in conditions:
        if found and condition.key not in known:
            raise UsageError(f"expected a key out of {', '.join(sorted(known))}, found {condition.key!r}")
    return {name: run for name, run in found.items() if all(condition.holds(run) for condition in conditions)}


def differences(found: Runs) -> dict[str, list[Any]]:
    """For each key in which runs differ, its value in each of them."""
    keys = dict.fromkeys(key for run in found.values() for key in run)
    values = {key: [run.get(key) for run in found.values()] for key in keys}
    return {key: column for key, column in values.items() if any(value != column[0] for value in column)}


@dataclass(frozen=True)
class GroupOfRuns:
    """Runs that agree in some keys: how many, and mean and standard deviation of a value over those that have it."""

    agreed: tuple[Any, ...]
    count: int
    mean: float | None
    deviation: float | None


def group(found: Runs, keys: Sequence[str], value: str) -> list[GroupOfRuns]:
    groups: dict[tuple[Any, ...], list[float | None]] = {}
    known = {key for run in found.values() for key in run}
    for key in (*keys, value):
        if found and key not in known:
            raise UsageError(f"expected a key out of {', '.join(sorted(known))}, found {key!r}")
    for run in found.values():
        agreed = tuple(str(run[key]) if isinstance(run.get(key), list | dict) else run.get(key) for key in keys)
        groups.setdefault(agreed, []).append(_number(run.get(value)))
    ordered = sorted(groups.items(), key=lambda item: [_rank(part) for part in item[0]])
    return [_summed_up(agreed, numbers) for agreed, numbers in ordered]


def _summed_up(agreed: tuple[Any, ...], numbers: list[float | None]) -> GroupOfRuns:
    known = [number for number in numbers if number is not None]
    mean = statistics.fmean(known) if known else None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return GroupOfRuns(agreed, len(numbers), mean, deviation)


def _rank(value: Any) -> tuple[bool, float, str]:
    number = _number(value)
    return (number is None, 0.0 if number is None else number, str(value))
