"""How processes that torchrun started become the ranks of one attack.

torchrun (or anything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT) says who is there. Sums go over gloo
on CPUs and over NCCL between GPUs. When a rank dies, its connections close and the others learn it at once; a rank that
is there but does not answer is given up after `PATIENCE`.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from exhume.attacks.foundation.ranks import ALONE, Ranks, RanksLost
from exhume.errors import ExhumeError

T = TypeVar("T")
PATIENCE = timedelta(minutes=10)  # a rank may have to read or draw many rows before the first sum


@contextmanager
def joined(patience: timedelta = PATIENCE) -> Iterator[Ranks]:
    """The ranks that were started together with this process, or this process alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size < 2:
        yield ALONE
        return
    with _termination_raises(size):
        store = _interruptible(lambda: _meet(size, patience))
        try:
            yield Ranks(dist.get_rank(), size, int(os.environ.get("LOCAL_WORLD_SIZE", "1")), store)
        finally:
            dist.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """The GPU of this process where several of them share a machine and none was named."""
    if device.type != "cuda" or device.index is not None or "LOCAL_RANK" not in os.environ:
        return device
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())


def _meet(size: int, patience: timedelta) -> Any:
    try:
        store, rank, _ = next(dist.rendezvous("env://", timeout=patience))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(
            backend, store=dist.PrefixStore("sums", store), rank=rank, world_size=size, timeout=patience
        )
        return store
    except (RuntimeError, ValueError) as problem:
        raise ExhumeError(
            f"expected {size} ranks to meet within {patience.total_seconds():.0f} s, found: "
            f"{str(problem).splitlines()[0]}; start them with torchrun"
        ) from problem


def _interruptible(work: Callable[[], T]) -> T:
    """The work of another thread: torch waits for other ranks deaf to signals, and this one is to hear them meanwhile.

    Work that is given up ends with the process.
    """
    outcome: Future[T] = Future()

    def carry_out() -> None:
        try:
            outcome.set_result(work())
        except BaseException as problem:
            outcome.set_exception(problem)

    threading.Thread(target=carry_out, daemon=True).start()
    return outcome.result()


@contextmanager
def _termination_raises(size: int) -> Iterator[None]:
    """torchrun ends all ranks when one has died: what is under way then ends like any other failure."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise RanksLost(
            f"expected {size} ranks to the end, found that one has stopped or that all were asked to; "
            "start again with the same command to continue"
        )

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this rank is leaving, and has to say why
        raise
    signal.signal(signal.SIGTERM, before)
