"""Jobs in processes of this machine. A process imports once and does many jobs; one that dies is replaced."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import IO

from exhume.errors import ExhumeError
from exhume_papers.sweeps.engines import Engine, Event, JobDone, JobLost, JobProgress
from exhume_papers.sweeps.jobs import Job, JobEnd

END_SECONDS = 5.0


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    wire: Connection
    life: int
    """The writing end of a pipe that the worker reads: it closes with this process, and the worker ends with it."""
    complaints: IO[bytes]
    ready: bool = False
    job: str | None = None

    def end(self, patience: float) -> None:
        """Without its wire the process leaves by itself."""
        self.wire.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.life)
        self.complaints.close()

    def last_words(self) -> str:
        self.complaints.seek(0)
        lines = self.complaints.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing said")


@dataclass(eq=False)
class LocalEngine(Engine):
    root: Path
    workers: int
    threads: int
    _workers: list[_Worker] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.workers - sum(worker.job is not None for worker in self._workers)

    @property
    def busy(self) -> bool:
        return any(worker.job is not None for worker in self._workers)

    def submit(self, job: Job) -> None:
        idle = [worker for worker in self._workers if worker.job is None]
        # a process that is up takes the job; a new one costs seconds
        worker = next(iter(sorted(idle, key=lambda worker: not worker.ready)), None) or self._start()
        worker.job = job.key
        with suppress(OSError):  # a process that just died: `events` finds out
            worker.wire.send(job)

    def events(self, timeout: float) -> Sequence[Event]:
        found: list[Event] = []
        wires = {worker.wire: worker for worker in self._workers}
        for wire in wait(list(wires), timeout):
            assert isinstance(wire, Connection)
            worker = wires[wire]
            try:
                message = wire.recv()
            except (EOFError, OSError):
                found += self._lost(worker)
                continue
            found += self._heard(worker, message)
        return found

    def interrupt(self) -> None:
        for worker in list(self._workers):
            if worker.job is not None and worker.ready:
                worker.process.send_signal(signal.SIGINT)
            elif worker.job is not None:  # it has not begun
                self._workers.remove(worker)
                worker.process.kill()
                worker.end(END_SECONDS)

    def close(self) -> None:
        for worker in self._workers:
            worker.wire.close()
            if worker.job is not None or not worker.ready:
                worker.process.kill()
        for worker in self._workers:
            worker.end(END_SECONDS)
        self._workers.clear()

    def _heard(self, worker: _Worker, message: object) -> list[Event]:
        if worker.job is None or message == "ready":
            worker.ready = True
            return []
        if isinstance(message, JobEnd):
            key, worker.job = worker.job, None
            return [JobDone(key, message)]
        return [JobProgress(worker.job, str(message))]

    def _lost(self, worker: _Worker) -> list[Event]:
        self._workers.remove(worker)
        worker.process.kill()
        code = worker.process.wait()
        words = worker.last_words()
        worker.end(END_SECONDS)
        if not worker.ready:
            raise ExhumeError(f"expected a worker process to start, found it ended with code {code}: {words}")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return [] if worker.job is None else [JobLost(worker.job, f"its process ended with {how}")]

    def _start(self) -> _Worker:
        ours, theirs = Pipe()
        end, life = os.pipe()
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed with its worker)
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait without spinning
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        command = [sys.executable, "-m", "exhume_papers.sweeps.worker"]
        arguments = [theirs.fileno(), end, self.threads, self.root.resolve()]
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            env=environment,
            pass_fds=(theirs.fileno(), end),
            stdin=subprocess.DEVNULL,
            stdout=complaints,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C in the terminal is for the sweep, which tells its workers
        )
        theirs.close()
        os.close(end)
        worker = _Worker(process, ours, life, complaints)
        self._workers.append(worker)
        return worker
