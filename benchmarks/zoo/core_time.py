"""Budgets in seconds of a core: what an attack gets does not depend on what else the machine does.

exhume counts its budgets by the clock (`time.monotonic`, and a timer of real time behind it). Both are put in the place
of the process's own time here. That is one core's as long as torch has one thread.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def budgets_of_a_core() -> Iterator[None]:
    with (
        patch.object(time, "monotonic", time.process_time),
        patch.object(signal, "ITIMER_REAL", signal.ITIMER_PROF),
        patch.object(signal, "SIGALRM", signal.SIGPROF),
    ):
        yield
