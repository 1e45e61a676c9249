"""What the commands print: results on standard output, progress and complaints on standard error."""

import json
import math
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unicodedata import category

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from exhume.attacks.running.loop import Progress as AttackProgress


def complain(message: str, debug: bool = False) -> None:
    """One line on standard error; the traceback before it only where it was asked for."""
    if debug:
        traceback.print_exc()
    print("exhume: " + printable(" ".join(message.split())), file=sys.stderr)


def say(message: str, as_json: bool = False) -> None:
    """A line for people: on standard output, or on standard error where standard output is for JSON."""
    print(printable(message), file=sys.stderr if as_json else sys.stdout, flush=True)


def printable(text: str) -> str:
    """What a terminal would obey, or turn round, as an escape: names come from files, and files from anywhere.

    >>> print(printable("run " + chr(27) + "[31m of " + chr(0x202e) + "Grüße"))
    run \\x1b[31m of \\u202eGrüße
    """
    return "".join(
        character
        if character.isprintable() or character == "\n" or category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def print_json(values: dict[str, Any]) -> None:
    """The last line of standard output. Numbers that JSON does not have become null."""
    print(json.dumps({key: _plain(value) for key, value in values.items()}), flush=True)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def attack_bar(iterations: int | None, shown: bool = True) -> Iterator[Callable[["AttackProgress"], None]]:
    """A bar with loss, speed and time left, fed by what is handed out. The iterations are a limit: so is the time.

    An attack that has no limit of iterations has a bar that only moves.
    """
    columns = (
        TextColumn("digging"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f}" if iterations is None else "{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("loss {task.fields[loss]:.1e}"),
        TextColumn("{task.fields[speed]:.1f} it/s"),
        *(() if iterations is None else (TimeRemainingColumn(), TextColumn("at most"))),
    )
    console = Console(stderr=True)
    hidden = not shown or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("digging", total=iterations, loss=1.0, speed=0.0)

        def show(progress: "AttackProgress") -> None:
            speed = progress.step.iteration / max(progress.seconds, 1e-9)
            bar.update(task, completed=progress.step.iteration, loss=progress.step.loss, speed=speed)

        yield show
