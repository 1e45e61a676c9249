"""A budget of time is kept in every phase: opening, an iterate that takes for ever, the verdict, whole inputs."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch

from exhume.attacks.foundation.certificate import unjudged
from exhume.attacks.foundation.judgement import Judgement
from exhume.attacks.foundation.ranks import ALONE
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running import budget
from exhume.attacks.running import closing as closing_module
from exhume.attacks.running.budget import GRACE, Clock, Closing, Limits
from exhume.attacks.running.failed_solve import Finished
from exhume.attacks.running.loop import Attacked, run_attack
from exhume.attacks.running.pooling import run_pool
from exhume.attacks.running.prepare import prepare
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.errors import ExhumeError
from exhume.observing.of_features import observe_features

STREAM = torch.Generator().manual_seed(0)
ROWS = torch.randn(400, 6, generator=STREAM)
DATA = torch.nn.functional.normalize(torch.randn(3, 6, generator=STREAM), dim=1) * 6**0.5
OBSERVATION = observe_features(ROWS, (DATA @ ROWS.T).relu().sum(0), "relu")
SLACK = 40.0  # far below the minute that nobody waits for, far above the grace: the machine may be busy


def for_ever() -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        torch.ones(10).sum()
    pytest.fail("nobody gave it up")


@dataclass(frozen=True)
class Stuck(HeavyBall):
    """Its iterate of that number never ends."""

    at: int = 3

    def steps(self, problem: Any, resume: State | None = None) -> Iterator[Step]:
        for step in super().steps(problem, resume):
            if step.iteration == self.at:
                for_ever()
            yield step


def timed(limits: Limits, method: Any, **options: Any) -> tuple[Attacked, float]:
    began = time.monotonic()
    attacked = run_attack(OBSERVATION.knowing(3), method, limits=limits, **options)
    return attacked, time.monotonic() - began


def test_an_iterate_that_never_ends_is_given_up_and_the_one_before_it_is_judged() -> None:
    attacked, seconds = timed(Limits(0.5), Stuck(step_size=1e-9, iterations=50))
    assert 0.5 <= seconds < 0.5 + SLACK
    assert attacked.stopped
    assert not attacked.interrupted
    assert attacked.reconstruction.iterations == 2
    assert attacked.reconstruction.held_out_loss is not None


def test_without_a_first_iterate_there_is_one_line() -> None:
    began = time.monotonic()
    with pytest.raises(ExhumeError, match=r"a first iterate within the budget of 0\.1s"):
        run_attack(OBSERVATION.knowing(3), Stuck(at=0), limits=Limits(0.1))
    assert time.monotonic() - began < 0.1 + SLACK


def test_an_opening_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeavyBall, "open_case", lambda *_: for_ever())
    with pytest.raises(ExhumeError, match=r"budget of 0\.1s"):
        run_attack(OBSERVATION.knowing(3), HeavyBall(), limits=Limits(0.1))


def test_time_before_the_attack_counts_where_it_is_told() -> None:
    attacked, seconds = timed(Limits(100.0, since=time.monotonic() - 99.5), HeavyBall(step_size=1e-9, iterations=10**7))
    assert attacked.stopped
    assert seconds < 0.5 + SLACK


def test_a_verdict_that_never_ends_leaves_the_result_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_module, "judged", lambda *_: for_ever())
    attacked, seconds = timed(Limits(0.3), HeavyBall(step_size=1e-9, iterations=10**7))
    assert seconds < 0.3 + SLACK
    found = attacked.reconstruction
    assert found.outcome.value == "not_converged"
    assert found.trusted == 0
    assert "before the verdict" in found.facts["failure"]


class FakeTime:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("verdict", "made"),
    [
        (0.25, ["rehearsal at 5.0", "last at 10.25"]),  # cheap: the grace is enough for it
        (3.0, ["rehearsal at 5.0"]),  # 10 - (1.5 x 3 - 0.5) is over by then
        (1.5, ["rehearsal at 5.0", "last at 8.5"]),  # 10 - (1.5 x 1.5 - 0.5) = 8.25 ends the search
    ],
)
def test_time_for_the_verdict_is_set_aside_as_it_was_measured(
    verdict: float, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, done = FakeTime(), list[str]()
    monkeypatch.setattr(budget, "time", fake)
    monkeypatch.setattr(budget, "given_up_at", lambda moment: nullcontext())
    clock = Clock(Limits(10.0, since=100.0), ALONE)

    def close(name: str, step: Step) -> Closing:
        done.append(f"{name} at {fake.now - 100}")
        fake.now += verdict
        judgement = Judgement(0.0, torch.zeros(0, 1), unjudged(0))
        return Closing(step, Finished(step.candidates), judgement, verdict)

    def steps() -> Iterator[Step]:
        for iteration in range(1000):
            fake.now += 0.5
            yield Step(iteration, torch.zeros(0, 1), 1.0, State({}, {}))

    for step in clock.watched(steps()):
        clock.rehearse(partial(close, "rehearsal", step))
        if clock.over:
            break
    end = clock.closing(step, partial(close, "last", step))
    assert done == made
    assert end.step is step
    assert fake.now - 100 <= 10 + GRACE


@pytest.mark.parametrize("method", [HeavyBall(iterations=40), SplitNewton(iterations=30)], ids=lambda m: m.name)
def test_the_verdict_at_half_of_the_time_changes_nothing(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = run_attack(OBSERVATION.knowing(3), method).reconstruction
    made = []

    def at_the_third(clock: Clock, close: Any) -> None:
        made.append(1)
        if len(made) in (3, 9):
            close()

    monkeypatch.setattr(Clock, "rehearse", at_the_third)
    other = run_attack(OBSERVATION.knowing(3), method, limits=Limits(1000.0)).reconstruction
    assert len(made) > 9
    assert torch.equal(calm.candidates, other.candidates)
    assert replace(calm.certificate) == other.certificate


def test_a_pool_shares_its_time() -> None:
    settings = AttackSettings("heavy-ball", {"step": 1e-9, "iterations": 10**7}, samples=3, limits=Limits(1.5), pool=3)
    began = time.monotonic()
    run_pool(prepare(OBSERVATION, settings))
    assert 1.4 <= time.monotonic() - began < 1.5 + SLACK


def test_whole_inputs_that_take_for_ever_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from exhume.attacks.running.prepare import run

    monkeypatch.setattr(HeavyBall, "completed", lambda *_: for_ever())
    settings = AttackSettings("heavy-ball", {"iterations": 3}, samples=3, limits=Limits(0.3))
    found = run(prepare(OBSERVATION, settings)).reconstruction
    assert "whole inputs" in found.facts["failure"]
