"""When the command at work began: a budget counts from there, the loading of libraries and files included."""

import time

_began = [time.monotonic()]


def begin(moment: float) -> None:
    _began[0] = moment


def command_began() -> float:
    """A moment of `time.monotonic`."""
    return _began[0]
