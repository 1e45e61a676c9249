"""An end to what takes too long: at a given moment the work under way is given up, wherever it is.

The system's timer (SIGALRM) raises `OutOfTime` between two operations of the interpreter, so that no method has to look
at a clock; one product or factorisation is never cut in two. Nor, for half a second, is code of a library: it may keep
books of its own (a stack of contexts) that an exception in its midst would leave unbalanced. So the frame of exhume's
that called it is traced, as a debugger would, and raises as soon as it has its turn again. That may be where a `with`
is about to end, which then never does: gradients that it switched off would stay off, and are switched on again here.
There is one such timer per process, and signals reach the main thread alone: in other threads nothing is given up.
"""

import math
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 0.5  # seconds
LIBRARIES = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], "<")


class OutOfTime(BaseException):
    """The moment has come. Not an Exception: nothing on the way up may take it for a fault of its own."""


@contextmanager
def given_up_at(moment: float) -> Iterator[None]:
    """Raises `OutOfTime` inside at a moment of `time.monotonic`. A timer that was set before goes on afterwards."""
    if math.isinf(moment) or threading.current_thread() is not threading.main_thread():
        yield
        return
    under_way, tracer = [True], sys.gettrace()

    def give_up() -> None:
        if under_way:
            under_way.clear()
            raise OutOfTime

    def at_its_turn(frame: FrameType, event: str, argument: object) -> None:
        give_up()

    def ring(number: int, frame: FrameType | None) -> None:
        caller = _first_of_ours(frame)
        if caller is None or caller is frame or time.monotonic() >= moment + PATIENCE:
            give_up()
        elif under_way:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            caller.f_trace = at_its_turn
            sys.settrace(lambda frame, event, argument: None)  # frames that begin now are left alone

    gradients = _gradients()
    began = time.monotonic()
    previous = signal.signal(signal.SIGALRM, ring)
    others, every = signal.setitimer(signal.ITIMER_REAL, max(moment - began, 1e-6))
    try:
        try:
            yield
        finally:
            under_way.clear()
    except OutOfTime:
        _set_gradients(gradients)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.settrace(tracer)
        signal.signal(signal.SIGALRM, previous)
        if others:
            signal.setitimer(signal.ITIMER_REAL, max(others - (time.monotonic() - began), 1e-6), every)


def _gradients() -> bool:
    """Whether torch records gradients. It does from the beginning, and is not loaded for this."""
    torch = sys.modules.get("torch")
    return True if torch is None else bool(torch.is_grad_enabled())


def _set_gradients(recorded: bool) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_grad_enabled(recorded)


def _first_of_ours(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is no library's; None where there is none."""
    while frame is not None and _of_a_library(frame):
        frame = frame.f_back
    return frame


def _of_a_library(frame: FrameType) -> bool:
    """Whether this is somebody else's code, or code that was made at run time."""
    return frame.f_code.co_filename.startswith(LIBRARIES) and not frame.f_globals.get("__name__", "").startswith(
        "exhume"
    )
