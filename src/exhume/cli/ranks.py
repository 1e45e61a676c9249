"""A command that several processes run together, started by torchrun."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.attacks.running.joining import joined


@contextmanager
def started_ranks() -> Iterator[Ranks]:
    """The ranks that torchrun started, or this process alone. Of ranks that fail, only the first one says why."""
    ranks = ALONE
    try:
        with joined() as ranks:
            yield ranks
    except (Exception, KeyboardInterrupt) as problem:
        if ranks.speaks():
            raise
        raise typer.Exit(getattr(problem, "exit_code", 1)) from problem
