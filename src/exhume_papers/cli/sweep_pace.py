"""How far a sweep is, and how long it will take."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exhume_papers.sweeps.plan import PlannedRun, SweepPlan
from exhume_papers.sweeps.sweep_folder import Ended

FAR = 10.0
"""A run with so many times the work of any that has ended is not foretold by them."""


@dataclass(eq=False)
class SweepProgress:
    """How far a sweep is, by the work of its runs, and how long it will take: so long a run, and so long for its work.

    Both are fitted to the runs that ended (least squares, neither below zero), for each method of attack by itself:
    the work of a run is a guess, which alone would be far off where small runs come first, and the same for each
    method.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    _work: float = 1.0
    _left: dict[str, PlannedRun] = field(default_factory=dict)
    _measured: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _at_work: int = 0
    _at_once: int = 1

    def begin(self, plan: SweepPlan, ended: Mapping[str, Ended]) -> None:
        self.failed = sum(end.failure is not None for end in ended.values())
        self.total, self.done = len(plan.runs), len(ended) - self.failed
        self._work = _work(plan.runs)
        self._left = {run.key: run for run in plan.runs if run.key not in ended}

    def started(self) -> None:
        self._at_work += 1
        self._at_once = max(self._at_once, self._at_work)

    def finished(self) -> None:
        self._at_work -= 1

    def count(self, run: PlannedRun, failed: bool, seconds: float) -> None:
        self.failed += failed
        self.done += not failed
        self._left.pop(run.key, None)
        self._measured.setdefault(run.attack.method, []).append((run.work, seconds))

    @property
    def share(self) -> float:
        return min(1.0, 1 - _work(self._left.values()) / self._work)

    @property
    def seconds_left(self) -> float | None:
        """None while it cannot be told."""
        together = [pair for pairs in self._measured.values() for pair in pairs]
        if not together:
            return None
        seconds = 0.0
        for method in {run.attack.method for run in self._left.values()}:
            runs = [run for run in self._left.values() if run.attack.method == method]
            measured = self._measured.get(method, together)
            if max(run.work for run in runs) > FAR * max(work for work, _ in measured):
                return None
            a_run, a_work = _fitted(measured)
            seconds += a_run * len(runs) + a_work * _work(runs)
        return seconds / self._at_once

    def words(self) -> str:
        left = self.seconds_left
        remaining = "" if left is None else f", about {duration(left)} left"
        failures = f", {self.failed} failed" if self.failed else ""
        return f"{self.done + self.failed}/{self.total}{failures}{remaining}"


def _work(runs: Iterable[PlannedRun]) -> float:
    return sum(run.work for run in runs)


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
