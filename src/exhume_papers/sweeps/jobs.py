"""What a worker does: train a victim, or attack one and hold what was found against the truth."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exhume.attacks.running.loop import Progress
from exhume.data.load import load
from exhume.errors import ExhumeError
from exhume.experiments.attacking import attack_run
from exhume.experiments.run import RunFolder
from exhume.experiments.scoring import score_run
from exhume.private_paths import without_folders
from exhume_papers.making.training_run import train_run
from exhume_papers.sweeps.plan import PlannedRun, PlannedVictim
from exhume_papers.sweeps.sweep_folder import SweepFolder


@dataclass(frozen=True)
class TrainJob:
    """`memory`: bytes that the attacks on it are thought to need."""

    victim: PlannedVictim
    memory: float = 0.0

    @property
    def key(self) -> str:
        return self.victim.key

    def carry_out(self, folder: SweepFolder, watch: "Watch") -> "JobEnd":
        _train(self.victim, folder, watch)
        return JobEnd()


@dataclass(frozen=True)
class AttackJob:
    run: PlannedRun
    results_only: bool

    @property
    def key(self) -> str:
        return self.run.key

    @property
    def memory(self) -> float:
        return self.run.memory

    def carry_out(self, folder: SweepFolder, watch: "Watch") -> "JobEnd":
        summary = _attack(self, folder, watch)
        return JobEnd(summary, interrupted=summary is None)


Job = TrainJob | AttackJob
Watch = Callable[[str], None]
"""Told in a few words how far a job is."""


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: with a summary, with a reason, or because it was asked to stop (then it can go on later)."""

    summary: dict[str, Any] | None = None
    failure: str | None = None
    interrupted: bool = False
    seconds: float = 0.0


def execute(job: Job, root: Path, watch: Watch) -> JobEnd:
    """Does a job in the folder of its sweep. Nothing that goes wrong in it gets out."""
    began = time.monotonic()
    _reset_peak_memory()
    try:
        if not root.is_dir():
            raise ExhumeError(f"expected the sweep's folder {root} on every machine, found none here")
        end = job.carry_out(SweepFolder(root), watch)
        return replace(end, seconds=time.monotonic() - began)
    except KeyboardInterrupt:
        return JobEnd(interrupted=True)
    except MemoryError:
        return JobEnd(failure="expected enough memory, found none left", seconds=time.monotonic() - began)
    except Exception as problem:
        return JobEnd(failure=_reason(problem, root), seconds=time.monotonic() - began)


def _reason(problem: Exception, root: Path) -> str:
    """One line, for a table that others may get to see."""
    text = without_folders(" ".join(str(problem).split()), root)
    return text if isinstance(problem, ExhumeError) else f"{type(problem).__name__}: {text}"


def _train(victim: PlannedVictim, folder: SweepFolder, watch: Watch) -> None:
    out = folder.victim(victim.key)
    if out.exists():
        return
    began = time.monotonic()
    data = load(victim.data)
    train_run(
        out,
        victim.data,
        victim.model,
        data,
        defence=victim.defence,
        request=victim.asked,
        progress=lambda steps, loss: watch(f"training: loss {loss:.1e}, {steps:,} steps"),
    )
    RunFolder(out).update_summary({"train_seconds": round(time.monotonic() - began, 4)})


def _attack(job: AttackJob, folder: SweepFolder, watch: Watch) -> dict[str, Any] | None:
    """The run's summary; None where somebody stopped it."""
    run = job.run
    out = folder.run(run.key)
    if out.exists():  # a process that was thought dead got there first
        return RunFolder(out).summary()
    part = RunFolder(folder.open_part(run))
    observation = part.observation(run.victim.factory)
    prepared = run.prepare(part, observation)

    def show(progress: Progress) -> None:
        watch(f"loss {progress.step.loss:.1e}, {progress.step.iteration:,} iterations")

    attacked = attack_run(part, prepared, show, watch)
    if attacked.interrupted:
        return None
    summary = part.update_summary(score_run(part, factory=run.victim.factory).summary())
    folder.close_part(run, job.results_only)
    return summary


def _reset_peak_memory() -> None:
    """A worker does many jobs; each should answer for its own memory. Linux only, elsewhere the peak is of them all."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
