"""What every engine is: something that takes the jobs of a sweep and tells what became of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from exhume_papers.sweeps.jobs import Job, JobEnd, execute


@dataclass(frozen=True)
class JobProgress:
    key: str
    words: str


@dataclass(frozen=True)
class JobDone:
    key: str
    end: JobEnd


@dataclass(frozen=True)
class JobLost:
    """The process that worked on a job is gone, and nothing is known of it but this."""

    key: str
    reason: str


Event = JobProgress | JobDone | JobLost


class Engine(ABC):
    """Takes jobs as long as it has room, and tells what became of them. Used as a context, in which it is at work."""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many more jobs may be handed over now."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a job is at work."""

    @abstractmethod
    def submit(self, job: Job) -> None: ...

    @abstractmethod
    def events(self, timeout: float) -> Sequence[Event]:
        """What happened since the last call; waits at most so many seconds for something to happen."""

    @abstractmethod
    def interrupt(self) -> None:
        """Asks the jobs at work to stop and to keep what they have. Their ends come as events."""

    def open(self) -> None:  # noqa: B027 (most have nothing to do)
        """Called before the first job."""

    @abstractmethod
    def close(self) -> None:
        """Ends whatever is still at work."""

    def __enter__(self) -> "Engine":
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HereEngine(Engine):
    """One job at a time in this very process: for Python scripts and small sweeps."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._waiting: list[Job] = []

    @property
    def room(self) -> int:
        return 1 - len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def submit(self, job: Job) -> None:
        self._waiting.append(job)

    def events(self, timeout: float) -> Sequence[Event]:
        jobs, self._waiting = self._waiting, []
        return [JobDone(job.key, execute(job, self._root, lambda words: None)) for job in jobs]

    def interrupt(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()
