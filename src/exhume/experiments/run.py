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
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset, Preparation
from exhume.errors import ExhumeError, UsageError
from exhume.features.rows import Rows, write_rows
from exhume.files import (
    SCHEMA,
    read_json,
    read_tensors,
    replacing,
    require_tensors,
    write_json,
    write_tensors,
    write_text,
)
from exhume.observation import FEATURES_FILE, Observation, load_observation, save_observation
from exhume.reconstruction import Reconstruction, load_reconstruction, save_reconstruction
from exhume.version import VERSION
from exhume.victims.random_features import RandomFeaturesConfig, Victim, draw_rows, train_random_features


@dataclass(frozen=True, eq=False)
class Truth:
    """The training data as the victim saw it, and the way back to pixels."""

    inputs: Float[Tensor, "n d"]
    labels: Float[Tensor, " n"]
    coefficients: Float[Tensor, " n"]
    class_index: Int[Tensor, " n"]
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int] | None
    preparation: Preparation


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

    def observation(self) -> Observation:
        return load_observation(self.path / "observation.safetensors")

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
        path = self.path / "truth.safetensors"
        file = read_tensors(path, "truth")
        require_tensors(file, path, "inputs", "labels", "coefficients", "class_index", "mean", "std", "scale")
        try:
            shape = tuple(file.meta["image_shape"]) if file.meta["image_shape"] else None
            class_names = tuple(file.meta["class_names"])
            standardise, norm = file.meta["standardise"], file.meta["norm"]
        except (KeyError, TypeError) as problem:
            raise ExhumeError(f"expected the whole truth in {path}, found it damaged at {problem}") from problem
        return Truth(
            inputs=file.tensors["inputs"],
            labels=file.tensors["labels"],
            coefficients=file.tensors["coefficients"],
            class_index=file.tensors["class_index"],
            class_names=class_names,
            image_shape=shape,
            preparation=Preparation(
                mean=file.tensors["mean"],
                std=file.tensors["std"],
                scale=file.tensors["scale"],
                image_shape=shape,
                standardise=standardise,
                norm=norm,
            ),
        )

    def summary(self) -> dict[str, Any]:
        path = self.path / "summary.json"
        return read_json(path) if path.exists() else {"schema": SCHEMA}

    def update_summary(self, values: dict[str, Any], drop: Sequence[str] = ()) -> dict[str, Any]:
        summary = {key: value for key, value in self.summary().items() if key not in drop} | values
        write_json(self.path / "summary.json", summary)
        return summary

    def save_attack(self, found: Reconstruction, trace: list[dict[str, float]]) -> dict[str, Any]:
        """Writes what an attack found. Scores of an earlier reconstruction no longer hold and are dropped."""
        save_reconstruction(found, self.path / "reconstruction.safetensors")
        write_text(self.path / "trace.csv", _as_csv(trace))
        return self.update_summary(found.summary(), drop=EVALUATION_KEYS)

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
    "mean_psnr",
    "mean_ssim",
    "report",
)


def train_run(out: Path, data_config: DataConfig, config: RandomFeaturesConfig, data: Dataset) -> dict[str, Any]:
    """Trains a random-features victim on the data and writes its run folder. Returns the summary."""
    check_new(out)
    _check_memory(config.params, data.inputs.dtype)
    with replacing(out) as folder:
        folder.mkdir()
        rows: Rows = draw_rows(config, data.inputs.shape[1])
        if config.features == "file":
            rows = write_rows(rows, folder / FEATURES_FILE)
        victim = train_random_features(config, data, rows)
        save_observation(victim.observation, folder / "observation.safetensors")
        _save_truth(data, victim, folder / "truth.safetensors")
        write_json(folder / "config.json", _config_json(data_config, config))
        summary = _train_summary(config, data, victim)
        write_json(folder / "summary.json", summary)
    return summary


def check_new(out: Path) -> None:
    if out.exists():
        raise UsageError(f"expected a new folder for --out, found {out} already there; choose another or remove it")


def _check_memory(params: int, dtype: torch.dtype) -> None:
    """Before hours are spent on drawing V: its rows are streamed, but the weights themselves are kept in memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if params * dtype.itemsize > memory:
        raise ExhumeError(
            f"expected weights that fit in the {memory / 2**30:.0f} GiB of this machine, found p = {params:,}; "
            "choose a smaller --ratio or --params"
        )


def _train_summary(config: RandomFeaturesConfig, data: Dataset, victim: Victim) -> dict[str, Any]:
    n, d = data.inputs.shape
    return {
        "schema": SCHEMA,
        "p": config.params,
        "d": d,
        "n": n,
        "ratio": config.params / (d * n),
        "activation": config.activation,
        "fit": config.fit,
        "training_loss": victim.training_loss,
        "train_seed": config.seed,
        "data": data.description,
    }


def _config_json(data_config: DataConfig, config: RandomFeaturesConfig) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "victim": "rf",
        "data": data_config.model_dump(mode="json"),
        "model": config.model_dump(mode="json"),
        "versions": {
            "exhume": VERSION,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
    }


def _save_truth(data: Dataset, victim: Victim, path: Path) -> None:
    preparation = data.preparation
    tensors = {
        "inputs": data.inputs,
        "labels": data.labels,
        "coefficients": victim.coefficients,
        "class_index": data.class_index,
        "mean": preparation.mean,
        "std": preparation.std,
        "scale": preparation.scale,
    }
    meta = {
        "class_names": data.class_names,
        "image_shape": data.image_shape,
        "standardise": preparation.standardise,
        "norm": preparation.norm,
    }
    write_tensors(path, "truth", tensors, meta)


def _as_csv(trace: list[dict[str, float]]) -> str:
    columns = list(dict.fromkeys(name for line in trace for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in trace:
        writer.writerow({**line, "iteration": int(line["iteration"])})
    return text.getvalue()
