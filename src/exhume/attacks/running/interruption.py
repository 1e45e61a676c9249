"""Ctrl-C that loses nothing: the first one stops the loop after its current step, the second one at once."""

import signal
import threading
from types import FrameType, TracebackType


class Interruption:
    """While active, SIGINT sets `asked` instead of raising; a second SIGINT raises KeyboardInterrupt as usual.

    `termination`: so does SIGTERM, by which torchrun ends the ranks of an attack.
    """

    def __init__(self, termination: bool = False) -> None:
        self.asked = False
        # Python delivers signals to the main thread only; elsewhere there is nothing to catch
        active = threading.current_thread() is threading.main_thread()
        self._signals = (signal.SIGINT, *((signal.SIGTERM,) if termination else ())) if active else ()
        self._previous: list[signal._HANDLER] = []

    def __enter__(self) -> "Interruption":
        self._previous = [signal.signal(number, self._ask) for number in self._signals]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in zip(self._signals, self._previous, strict=True):
            signal.signal(number, previous)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
