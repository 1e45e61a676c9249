"""An end to what takes too long: at a given moment the work under way is given up, wherever it is.

The system's timer (SIGALRM) raises `OutOfTime` between two operations of the interpreter, so that no method has to look
at a clock; one product or factorisation is never cut in two. Nor, for half a second, is code of a library: it may keep
books of its own (a stack of contexts) that an exception in its midst would leave unbalanced, so the timer rings again.
There is one such timer per process, and signals reach the main thread alone: in other threads nothing is given up.
"""

import math
import signal
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN, PATIENCE = 1e-3, 0.5  # seconds
LIBRARIES = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], "<")


class OutOfTime(BaseException):
    """The moment has come. Not an Exception: nothing on the way up may take it for a fault of its own."""


@contextmanager
def given_up_at(moment: float) -> Iterator[None]:
    """Raises `OutOfTime` inside at a moment of `time.monotonic`. A timer that was set before goes on afterwards."""
    if math.isinf(moment) or threading.current_thread() is not threading.main_thread():
        yield
        return
    under_way = [True]

    def ring(number: int, frame: FrameType | None) -> None:
        if not under_way:
            return
        if frame is not None and _of_a_library(frame) and time.monotonic() < moment + PATIENCE:
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
            return
        under_way.clear()
        raise OutOfTime

    began = time.monotonic()
    previous = signal.signal(signal.SIGALRM, ring)
    others, every = signal.setitimer(signal.ITIMER_REAL, max(moment - began, 1e-6))
    try:
        try:
            yield
        finally:
            under_way.clear()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
        if others:
            signal.setitimer(signal.ITIMER_REAL, max(others - (time.monotonic() - began), 1e-6), every)


def _of_a_library(frame: FrameType) -> bool:
    """Whether this is somebody else's code, or code that was made at run time."""
    return frame.f_code.co_filename.startswith(LIBRARIES) and not frame.f_globals.get("__name__", "").startswith(
        "exhume"
    )
