"""What one sees of a sweep: a live table with a bar on a terminal, one line a run elsewhere. All on standard error."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from exhume.cli.output import say
from exhume.experiments.jobs import Job, TrainJob
from exhume.experiments.plan import Plan, PlannedRun
from exhume.experiments.sweep_folder import Ended
from exhume.experiments.sweeping import Onlooker

LAST_SHOWN = 8


@dataclass(eq=False)
class Pace:
    """How far a sweep is, by the work of its runs, and how long it will take: so long a run, and so long for its work.

    Both are fitted to the runs that ended (least squares, neither below zero): the work of a run is a guess, which
    alone would be far off where small runs come first.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    _work: float = 1.0
    _work_before: float = 0.0
    _measured: list[tuple[float, float]] = field(default_factory=list)
    _at_work: int = 0
    _at_once: int = 1

    def begin(self, plan: Plan, ended: Mapping[str, Ended]) -> None:
        self.failed = sum(end.failure is not None for end in ended.values())
        self.total, self.done = len(plan.runs), len(ended) - self.failed
        self._work = sum(run.work for run in plan.runs)
        self._work_before = sum(run.work for run in plan.runs if run.key in ended)

    def started(self) -> None:
        self._at_work += 1
        self._at_once = max(self._at_once, self._at_work)

    def finished(self) -> None:
        self._at_work -= 1

    def count(self, run: PlannedRun, failed: bool, seconds: float) -> None:
        self.failed += failed
        self.done += not failed
        self._measured.append((run.work, seconds))

    @property
    def share(self) -> float:
        return min(1.0, (self._work_before + sum(work for work, _ in self._measured)) / self._work)

    @property
    def seconds_left(self) -> float | None:
        if not self._measured:
            return None
        a_run, a_work = _fitted(self._measured)
        runs = self.total - self.done - self.failed
        work = max(0.0, self._work - self._work_before - sum(work for work, _ in self._measured))
        return (a_run * runs + a_work * work) / self._at_once

    def words(self) -> str:
        left = self.seconds_left
        remaining = "" if left is None else f", about {duration(left)} left"
        failures = f", {self.failed} failed" if self.failed else ""
        return f"{self.done + self.failed}/{self.total}{failures}{remaining}"


def _fitted(measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Seconds for each run, and for each unit of its work.

    >>> _fitted([(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)])
    (1.0, 2.0)
    >>> _fitted([(2.0, 6.0)])
    (0.0, 3.0)
    >>> _fitted([(1.0, 9.0), (5.0, 1.0)])
    (5.0, 0.0)
    """
    count = len(measured)
    mean_work, mean_seconds = (sum(values) / count for values in zip(*measured, strict=True))
    spread = sum((work - mean_work) ** 2 for work, _ in measured)
    together = sum((work - mean_work) * (seconds - mean_seconds) for work, seconds in measured)
    if spread == 0:
        return 0.0, mean_seconds / mean_work if mean_work else 0.0
    a_work = max(0.0, together / spread)
    a_run = mean_seconds - a_work * mean_work
    return (a_run, a_work) if a_run >= 0 else (0.0, mean_seconds / mean_work)


def duration(seconds: float) -> str:
    """
    >>> duration(42.4), duration(150), duration(7300)
    ('42 s', '2 min 30 s', '2 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Titles:
    """A run by what tells it from the other runs of its sweep."""

    def __init__(self, plan: Plan) -> None:
        several = {name for name in plan.options if len({str(run.given.get(name)) for run in plan.runs}) > 1}
        self._varied = [name for name in plan.options if name in several]
        self._seeds = len({run.seed for run in plan.runs}) > 1

    def of(self, run: PlannedRun) -> str:
        told = [f"{name.partition('.')[2]}={run.given[name]}" for name in self._varied if name in run.given]
        told += [f"seed={run.seed}"] if self._seeds or not told else []
        return " ".join(told)


def result_words(end: Ended) -> str:
    if end.summary is None:
        return f"failed: {end.failure}"
    error = end.summary.get("error")
    return f"{end.summary.get('outcome')}" + ("" if error is None else f", error {error:.2g}")


class PlainOnlooker(Onlooker):
    """One line a run."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._pace = show, Pace()

    def begin(self, plan: Plan, ended: Mapping[str, Ended]) -> None:
        self._pace.begin(plan, ended)
        self._titles = Titles(plan)
        before = f", {len(ended)} of them before" if ended else ""
        self._show(f"{len(plan.runs)} runs{before}")

    def started(self, job: Job) -> None:
        self._pace.started()

    def finished(self, key: str) -> None:
        self._pace.finished()

    def ended(self, run: PlannedRun, end: Ended, seconds: float) -> None:
        self._pace.count(run, end.failure is not None, seconds)
        self._show(f"{self._titles.of(run)}: {result_words(end)}, {seconds:.1f} s ({self._pace.words()})")

    def stopping(self) -> None:
        self._show("stopping ...")


@dataclass(eq=False)
class _AtWork:
    title: str
    words: str = ""
    began: float = field(default_factory=time.monotonic)


class LiveOnlooker(Onlooker):
    """A table of what is at work and what ended last, and a bar with the time left."""

    def __init__(self, live: Live) -> None:
        self._live, self._pace = live, Pace()
        self._at_work: dict[str, _AtWork] = {}
        self._last: deque[tuple[str, Ended, float]] = deque(maxlen=LAST_SHOWN)
        self._words = "sweeping"

    def begin(self, plan: Plan, ended: Mapping[str, Ended]) -> None:
        self._pace.begin(plan, ended)
        self._titles = Titles(plan)

    def started(self, job: Job) -> None:
        title = f"train {job.victim.name}" if isinstance(job, TrainJob) else self._titles.of(job.run)
        self._at_work[job.key] = _AtWork(title)
        self._pace.started()

    def progress(self, key: str, words: str) -> None:
        if key in self._at_work:
            self._at_work[key].words = words

    def finished(self, key: str) -> None:
        self._at_work.pop(key, None)
        self._pace.finished()

    def ended(self, run: PlannedRun, end: Ended, seconds: float) -> None:
        self._pace.count(run, end.failure is not None, seconds)
        self._last.append((self._titles.of(run), end, seconds))

    def stopping(self) -> None:
        self._words = "stopping"

    def tick(self) -> None:
        self._live.update(self.picture())

    def picture(self) -> Group:
        table = Table(box=None, show_header=False, pad_edge=False)
        for title, end, seconds in self._last:
            style = "red" if end.failure is not None else ""
            table.add_row(Text(title), Text(result_words(end), style), Text(duration(seconds), justify="right"))
        now = time.monotonic()
        for work in self._at_work.values():
            table.add_row(Text(work.title, "bold"), Text(work.words, "dim"), Text(duration(now - work.began)))
        bar = Table.grid(padding=(0, 1))
        bar.add_row(self._words, ProgressBar(total=1.0, completed=self._pace.share, width=24), self._pace.words())
        return Group(table, bar)


@contextmanager
def watching() -> Iterator[Onlooker]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainOnlooker(lambda words: say(words, as_json=True))
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield LiveOnlooker(live)
