"""A worker process of a sweep: takes jobs from a wire, one after the other, until the wire is closed."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

PROGRESS_SECONDS = 0.5


def main(wire: Connection, life: int, threads: int, root: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is at work yet that could be stopped
    for number in (signal.SIGTERM, signal.SIGHUP):  # the sweep hears them too, and says when to stop
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    import torch

    from exhume_papers.sweeps.jobs import JobEnd, execute

    torch.set_num_threads(threads)
    wire.send("ready")
    while True:
        try:
            job = wire.recv()
        except (EOFError, OSError):
            return
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            end = execute(job, root, _throttled(wire))
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            end = JobEnd(interrupted=True)
        try:
            wire.send(end)
        except OSError:
            return


def _throttled(wire: Connection) -> Callable[[str], None]:
    last = time.monotonic()

    def show(words: str) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            with suppress(OSError):
                wire.send(words)

    return show


def _end_with_parent(life: int) -> None:
    """A sweep that was killed takes its workers along: nobody would hear of what they do."""
    os.read(life, 1)
    os._exit(1)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
