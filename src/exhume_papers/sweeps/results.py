"""The results of a sweep as one tidy table: one line a run, in the order of the grid."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from exhume.private_paths import without_folder, without_folders
from exhume_papers.sweeps.plan import PlannedRun, SweepPlan
from exhume_papers.sweeps.sweep_folder import Ended

IDENTITY = ("run", "status", "reason", "seed")
RESULTS = (
    "victim",
    "p",
    "d",
    "n",
    "ratio",
    "activation",
    "training_loss",
    "steps",
    "floor",
    "defence",
    "method",
    "outcome",
    "loss",
    "held_out_loss",
    "held_out_rows",
    "samples_found",
    "iterations",
    "passes",
    "error",
    "signed_error",
    "chance_error",
    "recovered_fraction",
    "span_residual",
    "mean_psnr",
    "mean_ssim",
)
RESULTS_OF_PRIORS = (
    "samples_trusted",
    "low_resolution_cosine",
    "low_resolution_recovered",
    "low_resolution_lookalikes",
)
RESULTS_OF_POOLS = ("pooled_runs",)
COSTS = ("seconds", "train_seconds", "peak_memory_mb")
"""Columns that differ each time."""


def columns(plan: SweepPlan) -> tuple[str, ...]:
    """What identifies a run, the options of the spec as train.KEY and attack.KEY, what came out, what it cost."""
    priors = RESULTS_OF_PRIORS if any(run.attack.prior != "none" for run in plan.runs) else ()
    pools = RESULTS_OF_POOLS if any(run.attack.pool > 1 for run in plan.runs) else ()
    return (*IDENTITY, *plan.options, *RESULTS, *priors, *pools, *COSTS)


def row(run: PlannedRun, ended: Ended) -> dict[str, Any]:
    status = "done" if ended.failure is None else "failed"
    summary = ended.summary or {}
    return {
        "run": run.key,
        "status": status,
        "reason": None if ended.failure is None else without_folders(ended.failure),  # of an older version, perhaps
        "seed": run.seed,
        **{name: without_folder(value) for name, value in run.given.items()},
        **{name: summary.get(name) for name in (*RESULTS, *RESULTS_OF_PRIORS, *RESULTS_OF_POOLS, *COSTS)},
    }


def rows(plan: SweepPlan, ended: Mapping[str, Ended]) -> list[dict[str, Any]]:
    return [row(run, ended[run.key]) for run in plan.runs if run.key in ended]


def as_csv(names: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> str:
    """Numbers with all their digits, nothing for what is not there."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in line.items()} for line in lines)
    return text.getvalue()
