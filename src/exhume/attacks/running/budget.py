"""The time of an attack: when it has to end, and what its verdict takes of it.

An attack with `seconds` ends within GRACE of them, whatever its method is doing: at its end the iterate under way is
given up, and the last one that was whole is what was found. A verdict takes time as well, nobody knows beforehand how
much. So at half of the time it is made once, on what there is by then. What that took is set aside at the end for the
last verdict, and a verdict that is not ready in time leaves this one to fall back on.

Several ranks would wait for one that gave up: theirs is checked between iterates alone.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from exhume.alarm import OutOfTime, given_up_at
from exhume.attacks.foundation.judgement import Judgement
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.state import Step
from exhume.attacks.running.failed_solve import Finished
from exhume.errors import ExhumeError, UsageError
from exhume.units import duration_text

GRACE = 1.0  # seconds after the end for what is under way: of the 3 that are promised, two are to write files and leave
LEAST_SECONDS = 0.05
MARGIN = 1.5  # candidates grow, and with them the time of a verdict


@dataclass(frozen=True)
class Limits:
    """What an attack may use. `seconds` is wall time; `memory_bytes` decides whether V is held or streamed.

    `since`: the moment of `time.monotonic` from which the seconds count; None: when the attack begins.
    """

    seconds: float = math.inf
    memory_bytes: int | None = None
    since: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise UsageError(f"expected a positive time budget, found {self.seconds} s")
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UsageError(f"expected a positive memory budget, found {self.memory_bytes} bytes")

    @property
    def begun(self) -> "Limits":
        """The same with a moment: now, where there was none."""
        return replace(self, since=time.monotonic()) if self.since is None else self

    def share(self, parts: int) -> "Limits":
        """From now on an equal part of the time that is left."""
        now = time.monotonic()
        left = self.seconds - (0.0 if self.since is None else now - self.since)
        return replace(self, seconds=max(left / parts, LEAST_SECONDS), since=now)

    @property
    def last(self) -> float:
        """The moment at which everything is given up."""
        return (time.monotonic() if self.since is None else self.since) + self.seconds + GRACE


@contextmanager
def ready_in_time(limits: Limits, what: str) -> Iterator[None]:
    """Around what comes before the first iterate: without it there is nothing to show."""
    try:
        with given_up_at(limits.last):
            yield
    except OutOfTime:
        raise _too_late(limits, what) from None


def _too_late(limits: Limits, what: str) -> ExhumeError:
    budget = duration_text(limits.seconds)
    return ExhumeError(f"expected {what} within the budget of {budget}, found none by then; give a longer --budget")


@dataclass(frozen=True, eq=False)
class Closing:
    """The end of an attack as it would be at a step: what is shown, the verdict on it, and what that took."""

    step: Step
    end: Finished
    judgement: Judgement
    seconds: float
    whole: bool = True


@dataclass
class Clock:
    """`earlier`: seconds of runs before this one. `rang`: the iterate under way was given up."""

    limits: Limits
    ranks: Ranks
    earlier: float = 0.0
    rehearsal: Closing | None = None
    rang: bool = False
    _begun: bool = False

    @property
    def _end(self) -> float:
        assert self.limits.since is not None
        return self.limits.since + self.limits.seconds - self.earlier

    @property
    def _search_ends(self) -> float:
        """Time for the verdict is set aside as far as the grace will not do."""
        needed = 0.0 if self.rehearsal is None else MARGIN * self.rehearsal.seconds
        return self._end - max(0.0, needed - GRACE / 2)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._search_ends

    @property
    def last(self) -> float:
        """When the verdict is given up; a run that goes on after its time still has the grace."""
        if self.ranks.size > 1:
            return math.inf
        return max(self._end, self.limits.begun.since or 0.0) + GRACE

    def watched(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps, up to the one that is given up; an ExhumeError where that is the first."""
        alone = self.ranks.size == 1
        while True:
            moment = math.inf if not alone else self._search_ends if self._begun else self.last
            try:
                with given_up_at(moment):
                    step = next(steps, None)
            except OutOfTime:
                if not self._begun:
                    raise _too_late(self.limits, "a first iterate") from None
                self.rang = True
                return
            if step is None:
                return
            self._begun = True
            yield step

    def rehearse(self, close: Callable[[], Closing]) -> None:
        """Makes the verdict once at half of the time."""
        assert self.limits.since is not None
        half = self.limits.since + (self.limits.seconds - self.earlier) / 2
        if self.rehearsal is None and self.ranks.size == 1 and time.monotonic() >= half:
            self.rehearsal = close()

    def closing(self, step: Step, close: Callable[[], Closing]) -> Closing:
        """The end at the last step; the rehearsed one where that is the same, or where the time allows no other."""
        before = self.rehearsal
        if before is not None and self.over and (before.step is step or self.last - time.monotonic() < before.seconds):
            return before
        now = close()
        return now if now.whole or before is None else before
