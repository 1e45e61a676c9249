"""A command that several processes run together, started by torchrun."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from exhume.attacks.joining import joined
from exhume.attacks.ranks import ALONE, Ranks


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
