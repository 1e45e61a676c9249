"""What the commands print: results on standard output, progress and complaints on standard error."""

import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from exhume.attacks.running.loop import Progress as AttackProgress


def complain(message: str, debug: bool = False) -> None:
    """One line on standard error; the traceback before it only where it was asked for."""
    if debug:
        traceback.print_exc()
    print("exhume: " + " ".join(message.split()), file=sys.stderr)


def say(message: str, as_json: bool = False) -> None:
    """A line for people: on standard output, or on standard error where standard output is for JSON."""
    print(message, file=sys.stderr if as_json else sys.stdout, flush=True)


def print_json(values: dict[str, Any]) -> None:
    """The last line of standard output. Numbers that JSON does not have become null."""
    print(json.dumps({key: _plain(value) for key, value in values.items()}), flush=True)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def attack_bar(iterations: int, shown: bool = True) -> Iterator[Callable[["AttackProgress"], None]]:
    """A bar with loss, speed and time left, fed by what is handed out. The iterations are a limit: so is the time."""
    columns = (
        TextColumn("digging"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("loss {task.fields[loss]:.1e}"),
        TextColumn("{task.fields[speed]:.1f} it/s"),
        TimeRemainingColumn(),
        TextColumn("at most"),
    )
    console = Console(stderr=True)
    hidden = not shown or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("digging", total=iterations, loss=1.0, speed=0.0)

        def show(progress: "AttackProgress") -> None:
            speed = progress.step.iteration / max(progress.seconds, 1e-9)
            bar.update(task, completed=progress.step.iteration, loss=progress.step.loss, speed=speed)

        yield show


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
