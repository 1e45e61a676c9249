"""Real processes that meet over loopback: this one is the first rank, another one is started beside it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from exhume.attacks.foundation.ranks import ALONE, RanksLost
from exhume.attacks.running.joining import joined, own_device
from exhume.errors import ExhumeError

# Takes part in what the test does, then leaves without a word, or stays without an answer.
OTHER = """
import os, sys, time
import torch
from exhume.attacks.running.joining import joined
with joined() as ranks:
    print(ranks.sum(torch.full((2, 3), 2.0)).tolist(), ranks.total(0.5), ranks.largest(7.0), ranks.any(True))
    print(ranks.same(torch.zeros(2)).tolist(), ranks.from_first(None), ranks.first, ranks.share.rank, flush=True)
    if sys.argv[1] == "leaves":
        os._exit(9)
    time.sleep(60)
"""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    for name, value in environment(0, number).items():
        monkeypatch.setenv(name, value)
    return number


def environment(rank: int, port: int) -> dict[str, str]:
    named = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    return named | ({"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {})


@pytest.fixture
def other(port: int) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OTHER, how]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment(1, port))
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", ["leaves", pytest.param("stays", marks=pytest.mark.slow)])
def test_ranks_sum_agree_and_notice_that_one_has_stopped(
    other: Callable[[str], subprocess.Popen[str]], how: str
) -> None:
    process = other(how)
    with joined(timedelta(seconds=60 if how == "leaves" else 20)) as ranks:
        assert (ranks.rank, ranks.size, ranks.first) == (0, 2, True)
        summed = ranks.sum(torch.ones(3, 2).T)  # not contiguous
        assert (summed.tolist(), ranks.total(1.0), ranks.largest(-1.0)) == ([[3.0] * 3] * 2, 1.5, 7.0)
        assert ranks.any(False)
        assert ranks.same(torch.ones(2)).tolist() == [1, 1]
        assert ranks.from_first({"a": torch.ones(1)})["a"].tolist() == [1]
        if how == "leaves":
            process.wait(60)
        began = time.monotonic()
        with pytest.raises(RanksLost, match="expected 2 ranks, found that one has stopped; start again"):
            ranks.total(1.0)
        assert time.monotonic() - began < 60
        assert [ranks.speaks(), ranks.speaks()] == [True, False]
    process.kill()
    printed = process.communicate()[0].splitlines()
    assert printed == [
        "[[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]] 1.5 7.0 True",
        "[1.0, 1.0] {'a': tensor([1.])} False 1",
    ]


@pytest.mark.usefixtures("port")
def test_a_rank_that_nobody_joins_says_so() -> None:
    expected = r"expected 2 ranks to meet within 1 s, found: .*; start them with torchrun"
    with pytest.raises(ExhumeError, match=expected), joined(timedelta(seconds=1)):
        pass


@pytest.mark.parametrize("size", [None, "1"])
def test_without_others_this_process_is_alone(monkeypatch: pytest.MonkeyPatch, size: str | None) -> None:
    if size is None:
        monkeypatch.delenv("WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("WORLD_SIZE", size)
    with joined() as ranks:
        assert ranks is ALONE
        assert ranks.first
        assert ranks.speaks()


def test_each_process_of_a_machine_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert own_device(torch.device("cuda")) == torch.device("cuda:3")
    assert own_device(torch.device("cuda:1")) == torch.device("cuda:1")
    assert own_device(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.delenv("LOCAL_RANK")
    assert own_device(torch.device("cuda")) == torch.device("cuda")
