"""Runs exhume's command line so that it can be killed well: started by `kills.py`, never by hand.

Checkpoints are written every few hundredths of a second instead of every 20 s, so that short runs have many of them.
With SOAK_DIE_AT = N the process kills itself, without a word, right before its N-th operation on a file below
SOAK_FOLDER (opening one to write, renaming, linking, making a folder, removing). SOAK_NOTES names a folder elsewhere
that gets the file `begun.RANK` when everything is imported and work begins, `struck` when the process kills itself, and
at a good end `count`, the number of these operations, and `done.RANK`. With SOAK_METHOD an audit plans that method
alone: otherwise one before it explains the weights, or takes minutes.
"""

import functools
import os
import signal
import sys
from pathlib import Path
from typing import Any

CHECKPOINT_SECONDS = 0.03
CHANGES = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir")


class Fuse:
    """Burns down by one with each operation on a file."""

    def __init__(self, folder: str, length: int | None, notes: Path | None = None) -> None:
        self.folder, self.length, self.notes, self.count = folder, length, notes, 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES and not (event == "open" and _writes(arguments)):
            return
        if not any(isinstance(name, str) and name.startswith(self.folder) for name in map(_text, arguments)):
            return
        self.count += 1
        if self.count == self.length:
            if self.notes is not None:
                (self.notes / "struck").touch()
            os.kill(os.getpid(), signal.SIGKILL)


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _text(name: object) -> object:
    return os.fspath(name) if isinstance(name, os.PathLike) else name


def import_everything() -> None:
    """What the commands would import when they need it: a kill should find them at work instead."""
    import exhume.attacks.running.prepare
    import exhume.auditing.from_files
    import exhume.cli.app
    import exhume.data.load
    import exhume.experiments.attacking
    import exhume.report.page  # noqa: F401


def plan_one_method() -> None:
    from exhume.attacks import registry
    from exhume.auditing import plan

    if method := os.environ.get("SOAK_METHOD"):
        plan.known_methods = lambda: registry.methods_called(method)


def main() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    first = os.environ.get("RANK", "0") == "0"  # of several ranks, the one that writes
    length = os.environ.get("SOAK_DIE_AT") if first else None
    notes = Path(os.environ["SOAK_NOTES"])
    import_everything()

    from exhume.attacks.running import joining, loop
    from exhume.cli import main as exhume
    from exhume_papers.making import training_run
    from exhume_papers.victims.descent_loop import Surroundings

    loop.CHECKPOINT_SECONDS = CHECKPOINT_SECONDS
    training_run.Surroundings = functools.partial(Surroundings, seconds_between=CHECKPOINT_SECONDS)  # type: ignore[misc,assignment]
    plan_one_method()
    fuse = Fuse(os.environ["SOAK_FOLDER"], None if length is None else int(length), notes)
    sys.addaudithook(fuse)
    rank = os.environ.get("RANK", "0")
    begin = (notes / f"begun.{rank}").touch
    if "WORLD_SIZE" in os.environ:  # a rank begins by meeting the others
        meet = joining._meet
        joining._meet = lambda *told: (begin(), meet(*told))[1]
    else:
        begin()
    try:
        exhume()
    except SystemExit as left:
        if left.code:
            raise
    if first:
        (notes / "count").write_text(str(fuse.count))
    (notes / f"done.{rank}").touch()


if __name__ == "__main__":
    main()
