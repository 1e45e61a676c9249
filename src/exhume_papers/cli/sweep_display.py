"""What one sees of a sweep: a live table with a bar on a terminal, one line a run elsewhere. All on standard error."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from exhume.cli.output import say
from exhume_papers.cli.sweep_pace import SweepProgress, duration
from exhume_papers.sweeps.jobs import Job, TrainJob
from exhume_papers.sweeps.plan import PlannedRun, SweepPlan
from exhume_papers.sweeps.sweep_folder import Ended
from exhume_papers.sweeps.sweeping import Onlooker

LAST_SHOWN = 8


class Titles:
    """A run by what tells it from the other runs of its sweep."""

    def __init__(self, plan: SweepPlan) -> None:
        several = {name for name in plan.options if len({str(run.given.get(name)) for run in plan.runs}) > 1}
        self._varied = [name for name in plan.options if name in several]
        self._seeds = len({run.seed for run in plan.runs}) > 1

    def of(self, run: PlannedRun) -> str:
        words = [f"{name.partition('.')[2]}={run.given[name]}" for name in self._varied if name in run.given]
        words += [f"seed={run.seed}"] if self._seeds or not words else []
        return " ".join(words)


def result_words(end: Ended) -> str:
    if end.summary is None:
        return f"failed: {end.failure}"
    error = end.summary.get("error")
    return f"{end.summary.get('outcome')}" + ("" if error is None else f", error {error:.2g}")


class PlainOnlooker(Onlooker):
    """One line a run."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._pace = show, SweepProgress()

    def begin(self, plan: SweepPlan, ended: Mapping[str, Ended]) -> None:
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
        self._live, self._pace = live, SweepProgress()
        self._at_work: dict[str, _AtWork] = {}
        self._last: deque[tuple[str, Ended, float]] = deque(maxlen=LAST_SHOWN)
        self._words = "sweeping"

    def begin(self, plan: SweepPlan, ended: Mapping[str, Ended]) -> None:
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
