"""One experiment, one folder.

    config.json                  everything needed to run it again, with seed and versions
    observation.safetensors      what the attacker sees (and features.safetensors where V is kept as a file)
    truth.safetensors            the training data and its coefficients; no attack opens it
    reconstruction.safetensors   what an attack found
    summary.json                 the numbers that other programs may rely on
    trace.csv                    one line per iteration

A new folder is made under a temporary name and renamed, so that it is whole or absent; each later file likewise.
"""

import csv
import io
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError, UsageError
from exhume.experiments.documents import read_config, read_summary
from exhume.experiments.truth import Truth, load_truth
from exhume.files import SCHEMA, write_json, write_text
from exhume.folder_lock import alone_in
from exhume.observation import Observation, load_observation
from exhume.reconstruction import Reconstruction, load_reconstruction, save_reconstruction
from exhume.regular_file import regular


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        if not path.is_dir():
            raise ExhumeError(f"expected a run folder at {path}, found none; make one with 'exhume train'")
        if not (path / "observation.safetensors").is_file():
            raise ExhumeError(f"expected observation.safetensors in {path}, found none; is this a run folder?")
        return cls(path)

    def alone(self, work: str) -> AbstractContextManager[None]:
        """Whoever writes into the folder does so alone; `work` says what."""
        return alone_in(self.path, work)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def observation(self, factory: str | None = None) -> Observation:
        """What the attacker sees; `factory` names code of the user's own that may run for it."""
        return load_observation(self.path / "observation.safetensors", factory)

    def reconstruction(self) -> Reconstruction:
        path = self.path / "reconstruction.safetensors"
        if not path.exists():
            raise ExhumeError(f"expected a reconstruction in {self.path}, found none; run 'exhume attack {self.path}'")
        return load_reconstruction(path)

    def has_truth(self) -> bool:
        return (self.path / "truth.safetensors").exists()

    def truth(self) -> Truth:
        return load_truth(self.path / "truth.safetensors")

    def config(self) -> dict[str, Any]:
        path = self.path / "config.json"
        return read_config(path) if path.exists() else {}

    def summary(self) -> dict[str, Any]:
        path = self.path / "summary.json"
        return read_summary(path) if path.exists() else {"schema": SCHEMA}

    def update_summary(self, values: dict[str, Any], drop: Sequence[str] = ()) -> dict[str, Any]:
        summary = {key: value for key, value in self.summary().items() if key not in drop} | values
        write_json(self.path / "summary.json", summary)
        return summary

    def save_attack(self, found: Reconstruction, trace: list[dict[str, float]]) -> dict[str, Any]:
        """Writes what an attack found. Scores of an earlier reconstruction no longer hold and are dropped."""
        save_reconstruction(found, self.path / "reconstruction.safetensors")
        write_text(self.path / "trace.csv", _as_csv(trace))
        return self.update_summary(found.summary(), drop=EVALUATION_KEYS)

    def check_one_attack(self, found: Reconstruction) -> None:
        """Refuses files of several attacks, such as a kill between two of them leaves, or two attacks at once."""
        expected, summary, trace = found.summary(), self.summary(), self.trace()
        other = [key for key in ONE_ATTACK if key in summary and summary[key] != expected[key]]
        if trace and trace[-1].get("iteration") != found.iterations:
            other.append("trace.csv")
        if other:
            raise ExhumeError(
                f"expected the files of one attack in {self.path}, found others beside reconstruction.safetensors "
                f"({other[0]}); run 'exhume attack {self.path}' again"
            )

    def trace(self) -> list[dict[str, float]]:
        path = self.path / "trace.csv"
        if not path.exists():
            return []
        try:
            with regular(path).open(encoding="utf-8", newline="") as file:
                return [
                    {name: _finite(value) for name, value in line.items() if value not in ("", None)}
                    for line in csv.DictReader(file)
                ]
        except (ValueError, TypeError, csv.Error) as problem:
            raise ExhumeError(f"expected lines of numbers in {path}, found: {problem}; attack again") from problem


EVALUATION_KEYS = (
    "error",
    "signed_error",
    "chance_error",
    "recovered_fraction",
    "span_residual",
    "recognised",
    "mean_psnr",
    "mean_ssim",
    "low_resolution_cosine",
    "low_resolution_recovered",
    "low_resolution_lookalikes",
    "report",
)


ONE_ATTACK = ("method", "seed", "iterations", "loss", "samples_found")
"""What summary.json and reconstruction.safetensors of one attack agree on, in every version."""


def check_new(out: Path) -> None:
    if out.exists():
        if (out / "observation.safetensors").exists():  # whole: its training was killed at the very end
            training_checkpoint(out).unlink(missing_ok=True)
        raise UsageError(f"expected a new folder for --out, found {out} already there; choose another or remove it")


def training_checkpoint(out: Path) -> Path:
    return out.with_name(f".{out.name}.training.safetensors")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r}, which is no finite number")
    return value


def _as_csv(trace: list[dict[str, float]]) -> str:
    columns = list(dict.fromkeys(name for line in trace for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in trace:
        writer.writerow({**line, "iteration": int(line["iteration"])})
    return text.getvalue()
