"""One experiment, one folder.

    config.json                  everything needed to run it again, with seed and versions
    observation.safetensors      what the attacker sees (and features.safetensors where V is kept as a file)
    truth.safetensors            the training data and its coefficients; no attack opens it
    reconstruction.safetensors   what an attack found
    summary.json                 the numbers that other programs may rely on
    trace.csv                    one line an iteration

A new folder is made under a temporary name and renamed, so that it is whole or absent; each later file likewise.
"""

import csv
import io
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from exhume.attacks.start import drawn, scale_left, without_start
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.documents import read_config, read_summary
from exhume.experiments.preparations import told_preparation
from exhume.experiments.training import TrainedVictim, VictimConfig, train_victim, victim_name
from exhume.experiments.truth import Truth, load_truth, save_truth
from exhume.files import SCHEMA, replacing, write_json, write_text
from exhume.observation import Observation, load_observation, save_observation
from exhume.reconstruction import Reconstruction, load_reconstruction, save_reconstruction
from exhume.version import VERSION
from exhume.victims.defences import check_surgeon, parse_defences, publish
from exhume.victims.descent_loop import Surroundings
from exhume.victims.floor import floor_of
from exhume.victims.network_config import NetworkConfig
from exhume.victims.random_features import RandomFeaturesConfig
from exhume.victims.recipe import Progress, TrainingStopped


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

    def has_reconstruction(self) -> bool:
        return (self.path / "reconstruction.safetensors").exists()

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

    def save_attack(
        self, found: Reconstruction, trace: list[dict[str, float]], facts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Writes what an attack found. Scores of an earlier reconstruction no longer hold and are dropped."""
        save_reconstruction(found, self.path / "reconstruction.safetensors")
        write_text(self.path / "trace.csv", _as_csv(trace))
        return self.update_summary(found.summary() | dict(facts or {}), drop=EVALUATION_KEYS)

    def trace(self) -> list[dict[str, float]]:
        path = self.path / "trace.csv"
        if not path.exists():
            return []
        try:
            with path.open(encoding="utf-8", newline="") as file:
                return [
                    {name: float(value) for name, value in line.items() if value not in ("", None)}
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


def train_run(
    out: Path,
    data_config: DataConfig,
    config: VictimConfig,
    data: Dataset,
    *,
    defence: str = "",
    request: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Trains a victim on the data and writes its run folder. Returns the summary.

    A network that is interrupted leaves a checkpoint beside `out`, from which the same call goes on. `defence` names
    what is done to the head before it is published, `request` the options that asked for all this.
    """
    check_new(out)
    settings = _config_json(data_config, config, defence)
    ridge = config.ridge if isinstance(config, RandomFeaturesConfig) else None
    defences = parse_defences(defence, ridge=ridge or 0.0, seed=config.seed)
    check_surgeon(defences, isinstance(config, NetworkConfig) and config.features_at == "midpoint")
    around = Surroundings(
        progress=progress,
        checkpoint=_training_checkpoint(out),
        keep_checkpoint=True,
        settings={"data": settings["data"], "defence": defence},
    )
    with _checkpointed(around), replacing(out, folder=True) as folder:
        victim = train_victim(config, data, folder, around)
        observation = publish(victim.observation, defences, inputs=data.inputs, initial=victim.initial_head)
        summary = _train_summary(victim, observation, data, defence, config.seed)
        save_observation(observation, folder / "observation.safetensors")
        save_truth(data, victim.coefficients, folder / "truth.safetensors")
        asked = {} if request is None else {"request": dict(request)}
        write_json(folder / "config.json", settings | asked | told_preparation(data.preparation))
        write_json(folder / "summary.json", summary)
    return summary


@contextmanager
def _checkpointed(around: Surroundings) -> Iterator[None]:
    """A checkpoint outlives an interruption and a full disk, but neither success nor a request that cannot be met."""
    path = around.checkpoint
    assert path is not None
    earlier = path.exists()
    try:
        yield
    except UsageError:
        if not earlier:  # an earlier one may be that of another request, and hours of work
            path.unlink(missing_ok=True)
        raise
    except KeyboardInterrupt as stopped:
        if isinstance(stopped, TrainingStopped) or not path.exists():
            raise
        raise TrainingStopped("interrupted before the run folder was whole") from None
    path.unlink(missing_ok=True)


def check_new(out: Path) -> None:
    if out.exists():
        if (out / "observation.safetensors").exists():  # whole: its training was killed at the very end
            _training_checkpoint(out).unlink(missing_ok=True)
        raise UsageError(f"expected a new folder for --out, found {out} already there; choose another or remove it")


def _training_checkpoint(out: Path) -> Path:
    return out.with_name(f".{out.name}.training.safetensors")


def _train_summary(
    victim: TrainedVictim, observation: Observation, data: Dataset, defence: str, seed: int
) -> dict[str, Any]:
    n, d = data.inputs.shape
    exact = victim.in_the_span and not defence
    return {
        "schema": SCHEMA,
        "victim": victim.name,
        "p": observation.p,
        "d": d,
        "n": n,
        "ratio": observation.p / (d * n),
        **victim.numbers,
        "floor": 0.0 if exact else floor_of(_started(observation, seed), data.inputs),
        "initial": observation.knowledge.initial,
        "defence": defence or None,
        "data": data.description,
    }


def _started(observation: Observation, seed: int) -> Observation:
    """What an attacker sees who has found the seed, where it can be found."""
    if observation.start is None:
        return observation
    head = drawn(observation, seed)
    return without_start(observation, head, scale_left(observation.weights, head))


def _config_json(data_config: DataConfig, config: VictimConfig, defence: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "victim": victim_name(config),
        "data": data_config.model_dump(mode="json"),
        "model": config.model_dump(mode="json"),
        "defence": defence or None,
        "versions": {
            "exhume": VERSION,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
    }


def _as_csv(trace: list[dict[str, float]]) -> str:
    columns = list(dict.fromkeys(name for line in trace for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in trace:
        writer.writerow({**line, "iteration": int(line["iteration"])})
    return text.getvalue()
