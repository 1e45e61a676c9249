"""What takes too long is given up at its moment, and a timer of somebody else's goes on."""

import json
import signal
import sys
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


def test_work_that_is_nearly_all_a_librarys_is_given_up_as_soon_as_it_returns() -> None:
    library: dict[str, Any] = {"monotonic": time.monotonic}
    source = "def long(until):\n    while monotonic() < until: pass\n"
    exec(compile(source, "<a library>", "exec"), library)
    turns: list[int] = []

    def use() -> None:
        while len(turns) < 1000:
            library["long"](time.monotonic() + 0.02)
            turns.append(1)

    with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 0.05):
        use()
    assert len(turns) < 10, "more than the one call that was under way"


def test_a_debugger_that_was_there_goes_on() -> None:
    def debugger(frame: Any, event: str, argument: Any) -> None:
        pass

    def use() -> None:
        while True:
            json.dumps(list(range(1000)))

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 0.02):
            use()
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)


def test_gradients_that_were_switched_off_when_time_was_over_are_on_again() -> None:
    def switch_off() -> None:
        torch.set_grad_enabled(False)
        busy(20)

    with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 0.05):
        switch_off()
    assert torch.is_grad_enabled()


def test_gradients_are_as_they_were_wherever_a_block_without_them_is_left() -> None:
    def enter_and_leave() -> None:
        while True:
            with torch.no_grad():
                pass

    for trial in range(40):
        with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 0.02 + trial * 1e-4):
            enter_and_leave()
        assert torch.is_grad_enabled()
