"""The one loop that runs a plan: what is left to do, in which order, what became of it."""

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from exhume.attacks.running.interruption import Interruption
from exhume.files import write_text
from exhume_papers.sweeps.engines import Engine, JobDone, JobLost, JobProgress
from exhume_papers.sweeps.jobs import AttackJob, Job, JobEnd, TrainJob
from exhume_papers.sweeps.plan import PlannedRun, SweepPlan
from exhume_papers.sweeps.results import as_csv, columns, rows
from exhume_papers.sweeps.sweep_folder import Ended, SweepFolder

ATTEMPTS = 2
STOP_SECONDS = 60.0
EVENT_SECONDS = 0.2
RESULTS_SECONDS = 5.0


class Onlooker:
    """Sees what a sweep does. This one does not look; nothing that it returns is read."""

    def begin(self, plan: SweepPlan, ended: Mapping[str, Ended]) -> None: ...

    def started(self, job: Job) -> None: ...

    def progress(self, key: str, words: str) -> None: ...

    def finished(self, key: str) -> None: ...

    def ended(self, run: PlannedRun, end: Ended, seconds: float) -> None: ...

    def stopping(self) -> None: ...

    def tick(self) -> None: ...


@dataclass(frozen=True)
class Swept:
    """The table as far as it goes, and how many runs it has of each kind.

    `work_seconds` is what the jobs of this time took by themselves, added up over all workers.
    """

    rows: list[dict[str, Any]]
    done: int
    failed: int
    left: int
    interrupted: bool
    seconds: float
    work_seconds: float


def run_sweep(
    plan: SweepPlan,
    out: Path,
    engine: Engine,
    *,
    keep: Literal["all", "results"] = "all",
    retry_failed: bool = False,
    memory: float = math.inf,
    onlooker: Onlooker | None = None,
) -> Swept:
    """Runs what has not ended yet and writes results.csv. Ctrl-C stops it; the same call goes on.

    `memory`: runs that are thought to need more bytes together are not at work together; one alone always may.
    """
    began = time.monotonic()
    folder = SweepFolder(out)
    with folder.locked():
        folder.tidy()
        sweeping = _Sweeping(plan, folder, engine, keep == "results", memory, onlooker or Onlooker())
        sweeping.look_up(retry_failed)
        if sweeping.left:
            with engine, Interruption() as interruption:
                sweeping.go(interruption)
        lines = sweeping.write_results()
        failed = sum(end.failure is not None for end in sweeping.ended.values())
        return Swept(
            rows=lines,
            done=len(lines) - failed,
            failed=failed,
            left=sweeping.left,
            interrupted=sweeping.interrupted,
            seconds=time.monotonic() - began,
            work_seconds=sweeping.work_seconds,
        )


@dataclass(eq=False)
class _Sweeping:
    plan: SweepPlan
    folder: SweepFolder
    engine: Engine
    results_only: bool
    memory: float
    onlooker: Onlooker
    ended: dict[str, Ended] = field(default_factory=dict)
    interrupted: bool = False
    work_seconds: float = 0.0
    _ready: deque[Job] = field(default_factory=deque)
    _at_work: dict[str, Job] = field(default_factory=dict)
    _attempts: dict[str, int] = field(default_factory=dict)
    _open: dict[str, list[PlannedRun]] = field(default_factory=dict)
    """The runs of each victim that have not ended."""
    _written: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        return len(self.plan.runs) - len(self.ended)

    def look_up(self, retry_failed: bool) -> None:
        """What has ended before, and the victims of what has not."""
        for run in self.plan.runs:
            end = self.folder.ended(run)
            if end is not None and end.failure is not None and retry_failed:
                self.folder.forget(run.key)
                end = None
            if end is None:
                self._open.setdefault(run.victim.key, []).append(run)
            else:
                self.ended[run.key] = end
        if self.results_only:
            for key in {run.victim.key for run in self.plan.runs} - self._open.keys():
                self.folder.drop_victim(key)
        self.onlooker.begin(self.plan, self.ended)

    def go(self, interruption: Interruption) -> None:
        for runs in self._open.values():
            victim = runs[0].victim
            if self.folder.victim(victim.key).exists():
                self._ready.extend(AttackJob(run, self.results_only) for run in runs)
            else:
                self._ready.append(TrainJob(victim, runs[0].memory))
        while (self._ready or self._at_work) and not (interruption.asked or self.interrupted):
            self._hand_out()
            self._listen()
            self._write_now_and_then()
        if interruption.asked or self.interrupted:
            self._stop()

    def write_results(self) -> list[dict[str, Any]]:
        lines = rows(self.plan, self.ended)
        write_text(self.folder.results, as_csv(columns(self.plan), lines))
        self._written = time.monotonic()
        return lines

    def _hand_out(self) -> None:
        while self._ready and self.engine.room > 0 and self._fits(self._ready[0]):
            job = self._ready.popleft()
            self._at_work[job.key] = job
            self.onlooker.started(job)
            self.engine.submit(job)

    def _fits(self, job: Job) -> bool:
        taken = sum(other.memory for other in self._at_work.values())
        return not self._at_work or taken + job.memory <= self.memory

    def _listen(self) -> None:
        for event in self.engine.events(EVENT_SECONDS):
            match event:
                case JobProgress():
                    self.onlooker.progress(event.key, event.words)
                case JobDone():
                    self.onlooker.finished(event.key)
                    self._done(self._at_work.pop(event.key), event.end)
                case JobLost():
                    self.onlooker.finished(event.key)
                    self._lost(self._at_work.pop(event.key), event.reason)
        self.onlooker.tick()

    def _done(self, job: Job, end: JobEnd) -> None:
        self.work_seconds += end.seconds
        if end.interrupted:  # whoever stops one job means them all
            self.interrupted = True
        elif end.failure is not None:
            self._failed(job, end.failure, end.seconds)
        elif isinstance(job, TrainJob):
            # before other victims: results come sooner, and weights that are not kept go sooner
            attacks = [AttackJob(run, self.results_only) for run in self._open[job.key]]
            self._ready.extendleft(reversed(attacks))
        else:
            self._end(job.run, Ended(end.summary), end.seconds)

    def _lost(self, job: Job, reason: str) -> None:
        self._attempts[job.key] = self._attempts.get(job.key, 0) + 1
        if self._attempts[job.key] < ATTEMPTS:
            self._ready.appendleft(job)
        else:
            self._failed(job, f"{reason}, {ATTEMPTS} times; is there enough memory?", 0.0)

    def _failed(self, job: Job, reason: str, seconds: float) -> None:
        if isinstance(job, AttackJob):
            self.folder.fail(job.run, reason)
            self._end(job.run, Ended(None, reason), seconds)
            return
        for run in list(self._open[job.key]):
            self.folder.fail(run, f"training: {reason}")
            self._end(run, Ended(None, f"training: {reason}"), seconds)

    def _end(self, run: PlannedRun, end: Ended, seconds: float) -> None:
        self.ended[run.key] = end
        self.onlooker.ended(run, end, seconds)
        of_victim = self._open[run.victim.key]
        of_victim.remove(run)
        if self.results_only and not of_victim:
            self.folder.drop_victim(run.victim.key)

    def _stop(self) -> None:
        """Lets the jobs at work keep what they have."""
        self.interrupted = True
        self.onlooker.stopping()
        self.engine.interrupt()
        until = time.monotonic() + STOP_SECONDS
        while self.engine.busy and time.monotonic() < until:
            self._listen()

    def _write_now_and_then(self) -> None:
        if time.monotonic() - self._written > RESULTS_SECONDS:
            self.write_results()
