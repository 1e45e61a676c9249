"""What an informed adversary knows, written from the truth by the owner of a run."""

from pathlib import Path
from typing import Any

import torch

from exhume.errors import UsageError
from exhume.experiments.documents import read_config
from exhume.experiments.run import RunFolder
from exhume.known import KNOWN_FILE, Known, KnownLoss, save_known


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


def _fit_of(model: dict[str, Any]) -> tuple[KnownLoss | None, float | None, bool]:
    """Loss, penalty and whether there is an intercept, of the fits that end at a stationary point."""
    if model.get("fit") == "ridge" and model.get("ridge"):
        return "square", float(model["ridge"]), False
    if "penalty" in model and model.get("loss") in ("square", "logistic"):
        return model["loss"], float(model["penalty"]), True
    return None, None, False
