"""The command line: parses and calls; the work is elsewhere. Modules that need torch are imported inside commands, so
that `exhume gauge` and every `--help` answer at once."""

import signal
import sys
import time
from types import FrameType


def main() -> None:
    """The command line as a process of its own: Ctrl-C is one line, from the first import to the last breath.

    A request to end (SIGTERM, or SIGHUP of a terminal that is closed) is a Ctrl-C: what was found is kept.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # otherwise somebody has said what is to come of it: nohup
            signal.signal(number, _as_ctrl_c)
    try:
        began = time.monotonic()
        from exhume.cli.app import main as run

        run(began)
    except KeyboardInterrupt:  # while importing, or pressed again while the first one was being reported
        _listen_no_more()
        print("exhume: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:  # nothing is left to interrupt, and whoever presses it again wants no traceback of the interpreter's end
        _listen_no_more()


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """What SIGINT would do now. A shell starts the commands that a script leaves in the background with SIGINT ignored:
    that is said of Ctrl-C, and not of somebody who asks this very process to end."""
    answer = signal.getsignal(signal.SIGINT)
    if not callable(answer):
        raise KeyboardInterrupt
    answer(signal.SIGINT, frame)


def _listen_no_more() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
