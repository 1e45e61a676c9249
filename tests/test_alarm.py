"""What takes too long is given up at its moment, and a timer of somebody else's goes on."""

import signal
import threading
import time
from typing import Any

import pytest
import torch

from exhume.alarm import OutOfTime, given_up_at


def busy(seconds: float) -> int:
    turns, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        torch.ones(50) @ torch.ones(50)
        turns += 1
    return turns


def test_work_is_given_up_at_its_moment() -> None:
    began = time.monotonic()
    with pytest.raises(OutOfTime), given_up_at(began + 0.1):
        busy(20)
    assert 0.1 <= time.monotonic() - began < 20


def test_work_that_is_done_before_is_left_alone() -> None:
    with given_up_at(time.monotonic() + 0.05):
        assert busy(0.001) > 0
    busy(0.1)  # the moment passes, and nothing comes of it


def test_a_moment_that_has_passed_gives_up_at_once() -> None:
    with pytest.raises(OutOfTime), given_up_at(time.monotonic() - 1):
        busy(20)


def test_no_moment_and_another_thread_give_up_nothing() -> None:
    with given_up_at(float("inf")):
        busy(0.01)
    done: list[int] = []

    def elsewhere() -> None:
        with given_up_at(time.monotonic() + 0.01):
            done.append(busy(0.1))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done


def test_a_timer_that_was_there_goes_on() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    left = signal.setitimer(signal.ITIMER_REAL, 2.0)  # instead of pytest's own, which is one such
    try:
        with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 0.05):
            busy(20)
        until = time.monotonic() + 60
        while not rung and time.monotonic() < until:
            busy(0.01)
        assert rung == [1]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


def inner_and_then_more(done: list[str]) -> None:
    try:
        with given_up_at(time.monotonic() + 0.05):
            busy(60)
    except OutOfTime:
        done.append("inner")
        busy(60)


def test_an_outer_moment_comes_after_an_inner_one() -> None:
    done: list[str] = []
    with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 1.0):
        inner_and_then_more(done)
    assert done == ["inner"]


def test_code_of_a_library_is_not_cut_in_two() -> None:
    """One that keeps books without a thought of exceptions: they are balanced whenever it is given up."""
    library: dict[str, Any] = {}
    source = "def booked(books):\n    books.append(1)\n    for _ in range(200): pass\n    books.pop()\n"
    exec(compile(source, "<a library>", "exec"), library)

    def use(books: list[int]) -> None:
        while True:
            library["booked"](books)
            for _ in range(200):
                pass

    for _ in range(20):
        books: list[int] = []
        with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 0.01):
            use(books)
        assert books == []
