"""An end to what takes too long: at a given moment the work under way is given up, wherever it is.

The system's timer (SIGALRM) raises `OutOfTime` between two operations of the interpreter, so that no method has to look
at a clock; one product or factorisation is never cut in two. There is one such timer per process, and signals reach the
main thread alone: in other threads nothing is given up.
"""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
        if under_way:
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
