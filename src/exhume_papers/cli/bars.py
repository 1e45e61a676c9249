"""The bars of training and of downloads; nothing is shown where standard error is no terminal."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


@contextmanager
def training_bar(steps: int, until: float) -> Iterator[Callable[[int, float], None]]:
    """A bar with loss and steps. What is full at the end is the way to the target, on a logarithmic scale."""
    columns = (
        TextColumn("training"),
        BarColumn(bar_width=24),
        TextColumn("loss {task.fields[loss]:.1e}"),
        TextColumn("{task.fields[steps]:,} steps"),
        TextColumn("{task.fields[speed]:.1f} steps/s"),
    )
    console = Console(stderr=True)
    began, before, first = time.monotonic(), -1, 0.0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=1.0, loss=math.nan, steps=0, speed=0.0)

        def show(done: int, loss: float) -> None:
            nonlocal before, first
            before = done if before < 0 else before  # steps of an earlier session
            first = max(first, loss)
            speed = (done - before) / max(time.monotonic() - began, 1e-9)
            bar.update(task, completed=_way_done(done / steps, first, loss, until), loss=loss, steps=done, speed=speed)

        yield show


def _way_done(share_of_steps: float, first: float, loss: float, until: float) -> float:
    """Training ends at the last step or at the target, whichever comes first."""
    if not (0 < until < first and 0 < loss <= first):
        return share_of_steps
    return max(share_of_steps, min(1.0, math.log(first / loss) / math.log(first / until)))


@contextmanager
def download_bar(name: str) -> Iterator[Progress]:
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task(name, total=None)
        yield bar
