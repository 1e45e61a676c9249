"""Jobs on a Ray cluster. All its machines must see the sweep's folder, and the images where the spec says they are."""

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError, UsageError
from exhume_papers.sweeps.engines import Engine, Event, JobDone, JobLost
from exhume_papers.sweeps.jobs import Job, JobEnd


class RayEngine(Engine):
    """`workers` None: as many jobs at once as the cluster has cores for, at `threads` cores a job."""

    def __init__(self, root: Path, *, workers: int | None, threads: int, address: str | None) -> None:
        self._ray = _import_ray()
        self._root = root.resolve()
        self._workers, self._threads, self._address = workers, threads, address
        self._jobs: dict[Any, str] = {}
        self._started = False

    @property
    def room(self) -> int:
        most = self._workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self._threads)
        return most - len(self._jobs)

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def submit(self, job: Job) -> None:
        # a job that is lost with its process is tried again by the sweep, which counts how often
        task = self._ray.remote(_execute).options(num_cpus=self._threads, max_retries=0, name=job.key)
        self._jobs[task.remote(job, str(self._root), self._threads)] = job.key

    def events(self, timeout: float) -> Sequence[Event]:
        if not self._jobs:
            time.sleep(timeout)
            return []
        self._ray.wait(list(self._jobs), num_returns=1, timeout=timeout)
        ready, _ = self._ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=0)
        return [self._ended(task) for task in ready]

    def interrupt(self) -> None:
        for task in self._jobs:
            self._ray.cancel(task, force=False)

    def open(self) -> None:
        if not self._ray.is_initialized():
            own = {"num_cpus": self._workers * self._threads if self._workers else None, "include_dashboard": False}
            try:
                os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray would report every start to its makers
                self._ray.init(
                    address=self._address,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    runtime_env={"env_vars": _environment(self._threads)},
                    **({} if self._address else own),
                )
            except (ConnectionError, RuntimeError, ValueError, OSError) as problem:
                where = f"at {self._address}" if self._address else "on this machine"
                token = "" if "RAY_AUTH_MODE" in os.environ else "; if it asks for a token, set RAY_AUTH_MODE=token"
                raise ExhumeError(f"expected a Ray cluster {where}, found: {problem}{token}") from problem
            self._started = True

    def close(self) -> None:
        for task in self._jobs:
            self._ray.cancel(task, force=True)
        self._jobs.clear()
        if self._started:
            self._ray.shutdown()

    def _ended(self, task: Any) -> Event:
        key = self._jobs.pop(task)
        try:
            return JobDone(key, self._ray.get(task))
        except self._ray.exceptions.TaskCancelledError:
            return JobDone(key, JobEnd(interrupted=True))
        except self._ray.exceptions.RayError as problem:
            return JobLost(key, f"Ray says {type(problem).__name__}: {' '.join(str(problem).split())[:200]}")


def _execute(job: Job, root: str, threads: int) -> JobEnd:
    """On a machine of the cluster, in a process that Ray keeps for more jobs."""
    import torch

    from exhume_papers.sweeps.jobs import execute

    torch.set_num_threads(threads)
    return execute(job, Path(root), lambda words: None)


def _environment(threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError(
            "expected Ray for the engine 'ray', found it not installed; pip install 'exhume[ray]'"
        ) from None
    return ray
