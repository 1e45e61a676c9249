"""The folder of a sweep.

    results.csv            one line a run that ended, in the order of the grid
    runs/KEY/              one run: a run folder as `exhume train` and `exhume attack` make it, or failed.json beside
                           what it was told
    runs/.KEY.part/        a run that has not ended, with the checkpoint of its attack
    victims/KEY/           a victim, trained once for all attacks on it; its files are linked into its runs

A run's key is a hash of its configuration, so the folder of a sweep that was killed says what is left to do.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError, UsageError
from exhume.experiments.documents import read_config, read_summary
from exhume.files import SCHEMA, replacing, write_json
from exhume.folder_lock import alone_in
from exhume.leftovers import remove_leftovers
from exhume_papers.sweeps.plan import PlannedRun

FAILED = "failed.json"
KEPT_RESULTS = ("config.json", "summary.json", "trace.csv", "truth.safetensors", "reconstruction.safetensors")


@dataclass(frozen=True)
class Ended:
    """A run that ended: its summary, or the reason why it failed."""

    summary: dict[str, Any] | None
    failure: str | None = None


@dataclass(frozen=True)
class SweepFolder:
    root: Path

    @property
    def results(self) -> Path:
        return self.root / "results.csv"

    def victim(self, key: str) -> Path:
        return self.root / "victims" / key

    def run(self, key: str) -> Path:
        return self.root / "runs" / key

    def part(self, key: str) -> Path:
        return self.root / "runs" / f".{key}.part"

    def ended(self, run: PlannedRun) -> Ended | None:
        """How a run ended, None if it has not."""
        folder = self.run(run.key)
        if (folder / FAILED).is_file():
            return Ended(None, str(read_summary(folder / FAILED).get("reason", "unknown")))
        if not folder.is_dir():
            return None
        kept = read_config(folder / "config.json")
        if not _agree(kept.get("settings"), _settings(run)):
            raise UsageError(
                f"expected the settings of now in {folder / 'config.json'}, found others: defaults have changed since "
                "it was made; choose another --out"
            )
        return Ended(read_summary(folder / "summary.json"))

    def fail(self, run: PlannedRun, reason: str) -> None:
        """The reason, and what the run was told, so that it is found by its settings as the others are."""
        shutil.rmtree(self.part(run.key), ignore_errors=True)
        settings = _of_the_victim(run) | {"defence": run.victim.defence, "attack": run.attack_words}
        with replacing(self.run(run.key), folder=True) as folder:
            write_json(folder / "config.json", {"schema": SCHEMA, **settings})
            write_json(folder / FAILED, {"schema": SCHEMA, "run": run.title(), "reason": reason})

    def forget(self, key: str) -> None:
        """A run that failed becomes one that has not been tried."""
        shutil.rmtree(self.run(key))

    def drop_victim(self, key: str) -> None:
        """Weights that nobody needs any more."""
        shutil.rmtree(self.victim(key), ignore_errors=True)

    def open_part(self, run: PlannedRun) -> Path:
        """The folder in which a run is made: the victim's files, and what an earlier attempt left."""
        part = self.part(run.key)
        part.mkdir(parents=True, exist_ok=True)
        for file in sorted(self.victim(run.victim.key).iterdir()):
            if file.is_file() and not file.name.startswith(".") and not (part / file.name).exists():
                _link(file, part / file.name)
        return part

    def close_part(self, run: PlannedRun, results_only: bool) -> None:
        """The run is whole: it gets its configuration and its name."""
        part = self.part(run.key)
        config = read_config(part / "config.json")
        write_json(part / "config.json", config | {"attack": run.attack_words, "settings": _settings(run)})
        (part / "checkpoint.safetensors").unlink(missing_ok=True)  # of an attack that its budget ended
        if results_only:
            for file in part.iterdir():
                if file.name not in KEPT_RESULTS:
                    file.unlink()
        part.rename(self.run(run.key))

    def tidy(self) -> None:
        """Removes what a killed process left half written, wherever it is in the sweep."""
        remove_leftovers(self.root)
        for place in ("victims", "victims/*", "runs", "runs/.*.part"):
            for folder in self.root.glob(place):
                remove_leftovers(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One sweep at a time. The lock goes with the process that holds it, however that ends."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ExhumeError(
                f"expected a writable folder at {self.root}, found: {problem.strerror}; choose another --out"
            ) from problem
        with alone_in(self.root, "this sweep"):
            yield


def _settings(run: PlannedRun) -> dict[str, Any]:
    """All settings of a run, defaults included, but for the place of the data. Of the attack, only what its key leaves
    out: the key stands for the rest, in whatever words it was asked for. Options of one method are in the method.
    """
    victim, method = run.victim, run.method()
    shared = set(type(run.attack).declared().model_fields)
    assert is_dataclass(method)
    assert not isinstance(method, type)
    return {
        **_of_the_victim(run),
        "defence": victim.defence,
        "attack": run.attack.model_dump(mode="json", include=shared - {"seed", *run.identity["attack"]}),
        "method": json.loads(json.dumps(asdict(method), default=str)),
        "seed": run.seed,
    }


def _of_the_victim(run: PlannedRun) -> dict[str, Any]:
    victim = run.victim
    data = victim.data.model_dump(mode="json", exclude={"data_dir"})
    return {"data": data, "model": victim.model.model_dump(mode="json")}


def _agree(kept: Any, now: Any) -> bool:
    """Whether settings are the same as far as both know them: one that was added since changes nothing.

    >>> _agree({"a": {"b": 1}}, {"a": {"b": 1, "new": 2}}), _agree({"a": {"b": 1}}, {"a": {"b": 2}})
    (True, False)
    """
    if isinstance(kept, dict) and isinstance(now, dict):
        return all(_agree(kept[key], now[key]) for key in kept.keys() & now.keys())
    return bool(kept == now)


def _link(file: Path, name: Path) -> None:
    """A second name for the same bytes: files are replaced as a whole, never changed. A copy where links are not."""
    try:
        os.link(file, name)
    except OSError:
        with replacing(name) as temporary:
            shutil.copy(file, temporary)
