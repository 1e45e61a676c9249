"""A command that several processes run together, started by torchrun."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from exhume.attacks.joining import joined
from exhume.attacks.ranks import ALONE, Ranks, RanksLost


@contextmanager
def started_ranks() -> Iterator[Ranks]:
    """The ranks that torchrun started, or this process alone. Of ranks that fail, only the first one says why."""
    ranks = ALONE
    try:
        with joined() as ranks, _told_when_ended(ranks):
            yield ranks
    except (Exception, KeyboardInterrupt) as problem:
        if ranks.speaks():
            raise
        raise typer.Exit(getattr(problem, "exit_code", 1)) from problem


@contextmanager
def _told_when_ended(ranks: Ranks) -> Iterator[None]:
    """torchrun ends the other ranks by SIGTERM when one dies, maybe before they have noticed: not without a word."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it sends SIGKILL to whoever takes too long to leave
        raise RanksLost(ranks.lost)

    if ranks.size == 1:
        yield
        return
    previous = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, previous)
