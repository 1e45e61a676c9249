"""The knowledge of an informed adversary, kept as a file of its own in the run folder.

The owner of a run writes it from the truth (`exhume known`); an attack reads it, and the evaluation leaves out what was
known.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from exhume.errors import ExhumeError, UsageError
from exhume.experiments.documents import read_config
from exhume.experiments.run import RunFolder
from exhume.experiments.truth import Truth
from exhume.known import KNOWN_FILE, Known, KnownLoss, load_known, save_known


def write_known(run: RunFolder, missing: int, out: Path | None = None) -> Path:
    """All samples of a run but one, with their labels and the penalty where the fit has one."""
    truth = run.truth()
    n = len(truth.inputs)
    check_missing(missing, n)
    others = torch.arange(n) != missing
    inputs = truth.inputs[others]
    loss, penalty, intercept = _fit_of(read_config(run.path / "config.json").get("model") or {})
    known = Known(inputs) if penalty is None else Known(inputs, truth.labels[others], loss, penalty, intercept)
    path = run.path / KNOWN_FILE if out is None else out
    save_known(known, path)
    return path


def check_missing(missing: int, n: int) -> None:
    if not 0 <= missing < n:
        raise UsageError(f"expected the number of a sample from 0 to {n - 1} to be missing, found {missing}")


def keep_known(run: RunFolder, given: Path | None, d: int) -> Known:
    """The samples of a file; it stays in the run folder, because the evaluation has to know them as well."""
    kept = run.path / KNOWN_FILE
    if given is None and not kept.exists():
        raise ExhumeError(f"expected {KNOWN_FILE} in {run.path}, found none; give --known FILE, or 'exhume known'")
    known = load_known(kept if given is None else given, d)
    if given is not None and given.resolve() != kept.resolve():
        save_known(known, kept)
    return known


def unknown_part(run: RunFolder, truth: Truth) -> Truth:
    """The samples that were not known to the informed adversary of this run."""
    known = load_known(run.path / KNOWN_FILE, truth.inputs.shape[1]).inputs.to(truth.inputs)
    hidden = ~(truth.inputs[:, None] == known[None]).all(dim=2).any(dim=1)
    if not hidden.any():
        raise ExhumeError(f"expected a sample that {run.path / KNOWN_FILE} leaves out, found all of them in it")
    return replace(
        truth,
        inputs=truth.inputs[hidden],
        labels=truth.labels[hidden],
        coefficients=None if truth.coefficients is None else truth.coefficients[hidden],
        class_index=truth.class_index[hidden],
        preparation=replace(truth.preparation, scale=truth.preparation.scale[hidden]),
    )


def _fit_of(model: dict[str, Any]) -> tuple[KnownLoss | None, float | None, bool]:
    """Loss, penalty and whether there is an intercept, of the fits that end at a stationary point."""
    if model.get("fit") == "ridge" and model.get("ridge"):
        return "square", float(model["ridge"]), False
    if "penalty" in model and model.get("loss") in ("square", "logistic"):
        return model["loss"], float(model["penalty"]), True
    return None, None, False
