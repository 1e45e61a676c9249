"""Solves that fail on the way: an outcome with advice, or one line, and never a NaN."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import exhume
from exhume.attacks.foundation.ranks import ALONE, Ranks, RanksLost
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.failed_solve import sound
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.case import RidgeCase
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.signs import _repair_by_constant
from exhume.attacks.single_layer.span import SpanLoss
from exhume.errors import ExhumeError
from exhume.observation import Observation
from exhume.reconstruction import Outcome, Reconstruction


@pytest.fixture(scope="module")
def observation() -> Observation:
    stream = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 3, generator=stream)
    inputs = torch.randn(2, 3, generator=stream)
    inputs *= math.sqrt(3) / inputs.norm(dim=1, keepdim=True)
    weights = torch.tensor([[1.0, -0.5]]) @ (inputs @ rows.T).clamp_min(0)
    return exhume.observe_features(rows, weights, "relu").knowing(2)


def singular() -> None:
    torch.linalg.inv(torch.zeros(2, 2))


def check(found: Reconstruction) -> str:
    """An outcome with advice, all numbers finite; gives the reason."""
    assert found.outcome is not Outcome.RECOVERED
    assert found.outcome.advice
    assert torch.isfinite(found.candidates).all()
    assert torch.isfinite(found.coefficients).all()
    assert found.coefficients.shape == (2, 1)
    json.dumps(found.summary(), allow_nan=False)
    return str(found.summary()["failure"])


class Raising(HeavyBall):
    """A method whose third step cannot be solved for."""

    def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
        for step in super().steps(problem, resume):
            if step.iteration >= 3:
                singular()
            yield step


class Straying(HeavyBall):
    """A method whose third iterate is not finite although its loss is."""

    def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
        for step in super().steps(problem, resume):
            yield replace(step, candidates=step.candidates * math.nan) if step.iteration >= 3 else step


class Unfinishable(HeavyBall):
    def finish(self, problem: Problem, candidates: Tensor) -> Tensor:
        singular()
        return candidates


class Spoiling(HeavyBall):
    def finish(self, problem: Problem, candidates: Tensor) -> Tensor:
        return candidates * math.nan


def test_a_step_that_cannot_be_solved_for_ends_the_attack_with_the_step_before(observation: Observation) -> None:
    found = run_attack(observation, Raising(iterations=5)).reconstruction
    failure = check(found)
    assert failure.startswith("a solve failed after iteration 2 (linalg.inv: ")
    assert failure.endswith("singular); the candidates are those of that iteration")
    assert found.iterations == 2
    undisturbed = run_attack(observation, HeavyBall(iterations=2)).reconstruction
    assert torch.equal(found.candidates, undisturbed.candidates)


def test_candidates_that_are_not_finite_end_the_attack_like_a_loss_that_is_not(observation: Observation) -> None:
    done = run_attack(observation, Straying(iterations=5))
    failure = check(done.reconstruction)
    assert failure == "a candidate was not finite at iteration 3; the candidates are those of iteration 2"
    assert done.trace[-1]["iteration"] == 2


@pytest.mark.parametrize("method", [Unfinishable(iterations=50), Spoiling(iterations=50)])
def test_a_finish_that_fails_leaves_the_candidates_as_they_were(observation: Observation, method: HeavyBall) -> None:
    done = run_attack(observation, method, limits=Limits(seconds=1e-9))
    assert done.stopped
    assert check(done.reconstruction).startswith("finishing failed (")


def test_a_judgement_that_cannot_be_made_is_no_verdict(
    observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RidgeCase, "judge", lambda self, candidates: singular())
    found = run_attack(observation, HeavyBall(iterations=2)).reconstruction
    assert "the judgement failed (linalg.inv: " in check(found)
    assert found.outcome is Outcome.NOT_CONVERGED
    assert found.certificate.confidence == (0.0, 0.0)


def test_a_judgement_with_numbers_that_are_not_finite_is_no_verdict(
    observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = RidgeCase.judge
    monkeypatch.setattr(RidgeCase, "judge", lambda self, candidates: replace(judge(self, candidates), loss=math.inf))
    found = run_attack(observation, HeavyBall(iterations=2)).reconstruction
    assert "the judgement failed (numbers that are not finite)" in check(found)
    assert math.isfinite(found.loss)


def test_what_fails_before_the_first_step_is_one_line(
    observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AtOnce(HeavyBall):
        def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
            singular()
            yield from super().steps(problem, resume)

    with pytest.raises(ExhumeError, match=r"expected a start that can be solved for, found: linalg.inv.*float64"):
        run_attack(observation, AtOnce(iterations=5))
    monkeypatch.setattr(HeavyBall, "open_case", lambda *arguments: singular())
    with pytest.raises(ExhumeError, match=r"expected what an attack is to solve for to have a solution.*linalg.inv"):
        run_attack(observation, HeavyBall(iterations=5))


def test_of_several_ranks_one_whose_solve_fails_stops_and_says_how_to_go_on() -> None:
    def steps() -> Iterator[Step]:
        yield Step(0, torch.zeros(1, 2), 1.0, State({}, {}))
        singular()

    assert len(list(sound(iter([]), ALONE))) == 0
    with pytest.raises(RanksLost, match=r"found on rank 1: linalg.inv.* without torchrun"):
        list(sound(steps(), Ranks(rank=1, size=2)))


def test_least_squares_of_numbers_that_are_not_finite_is_a_failed_solve(observation: Observation) -> None:
    features = replace(observation.ridge, activation=exhume.activations.activation("tanh"))
    loss = SpanLoss(features, observation.weights, torch.float32, torch.device("cpu"))
    with pytest.raises(torch.linalg.LinAlgError, match="non-finite"):
        _repair_by_constant(loss, torch.full((2, 3), math.nan))
