"""Where the jobs of a sweep run: here, in processes of this machine, or on a Ray cluster. The results are the same."""

import os
from pathlib import Path

from exhume.errors import UsageError
from exhume.machine import memory_bytes
from exhume_papers.sweeps.engines import Engine, HereEngine
from exhume_papers.sweeps.local_engine import LocalEngine
from exhume_papers.sweeps.ray_engine import RayEngine

ENGINES = ("local", "ray", "here")


def make_engine(
    name: str, root: Path, *, workers: int | None = None, threads: int | None = None, address: str | None = None
) -> Engine:
    """The engine of that name for the sweep in a folder.

    `workers` processes of `threads` threads each: by default one process a core, and what cores there are divided
    among them. `address` is that of a Ray cluster; without one, Ray is started on this machine.
    """
    if name not in ENGINES:
        raise UsageError(f"expected an engine out of {', '.join(ENGINES)}, found {name!r}")
    if address is not None and name != "ray":
        raise UsageError(f"expected --address with --engine ray, found it with {name}")
    for flag, number in (("--workers", workers), ("--threads", threads)):
        if number is not None and number < 1:
            raise UsageError(f"expected {flag} from 1, found {number}")
    if name == "here":
        return HereEngine(root)
    if name == "ray":
        return RayEngine(root, workers=workers, threads=threads or 1, address=address)
    count = workers or max(1, usable_cores() // (threads or 1))
    return LocalEngine(root, workers=count, threads=threads or max(1, usable_cores() // count))


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_memory() -> float:
    """Bytes that the runs of this machine may take together: most of what there is."""
    return 0.8 * memory_bytes()
