"""Commands of exhume as children of the harness: a fork of a process that has torch and exhume imported already.

Importing takes longer than the work of most scenes. A child is a process of its own: a signal ends it as it would end
any other, with nothing of Python's running afterwards. What takes its own processes (workers, ranks) is started afresh.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Forked:
    """The part of `subprocess.Popen` that the harness uses; standard error goes to a file of no name."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            raise RuntimeError("expected one thread before a fork, found more: the child could wait for ever")
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 (it is read after the child has ended)
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(arguments, environment, self.words.fileno())

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("exhume", timeout or 0.0)
            time.sleep(0.002)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[Any, bytes]:
        self.wait(timeout)
        self.words.seek(0)
        return None, self.words.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(arguments: Sequence[str], environment: Mapping[str, str], words: int) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(words, 2)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["exhume", *arguments]
        import kill_launch

        kill_launch.main()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def warm_up() -> None:
    """Once, before the first fork: one thread only, so that nothing is held by another one while forking."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
    from kill_launch import import_everything

    import_everything()
