"""Ctrl-C that loses nothing: the first one stops the loop after its current step, the second one at once."""

import signal
import threading
from types import FrameType, TracebackType


class Interruption:
    """While active, SIGINT sets `asked` instead of raising; a second SIGINT raises KeyboardInterrupt as usual."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: signal._HANDLER = None
        # Python delivers signals to the main thread only; elsewhere there is nothing to catch
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "Interruption":
        if self._active:
            self._previous = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._previous)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
