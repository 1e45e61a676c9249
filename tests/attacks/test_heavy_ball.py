import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.state import Step
from exhume.attacks.heavy_ball import HeavyBall, published_step
from exhume.attacks.running.loop import run_attack
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.span import SpanLoss
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold
from exhume.metrics.errors import reconstruction_error
from exhume.reconstruction import Outcome
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

D, N, P = 8, 3, 300


def problem_of(name: str = "relu", norm: float = D**0.5, samples: int | None = N, seed: int = 0) -> Problem:
    features = RidgeFeatures(hold(DrawnRows(1, P, D), dtype=torch.float64), activation(name))
    stream = torch.Generator().manual_seed(7)
    true = to_norm(torch.randn(N, D, generator=stream, dtype=torch.float64), norm)
    weights = torch.randn(1, N, generator=stream, dtype=torch.float64) @ features(true)
    loss = SpanLoss(features, weights, torch.float64)
    return Problem(
        loss=loss,
        coarse=loss,
        norm=norm,
        samples=samples,
        seed=seed,
        steering_loss=lambda candidates, coefficients=None: None,
        rounding=0.0,
        dtype=torch.float64,
        device=torch.device("cpu"),
    )


def dense_descent(problem: Problem, start: Tensor, step_size: float, momentum: float, steps: int) -> Tensor:
    """The published attack written with torch's optimiser and torch's gradient of the projected loss."""
    rows, act = problem.loss.features.rows.block(0, P), problem.loss.features.activation
    weights = problem.loss.weights[0]
    candidates = start.clone().requires_grad_()
    optimiser = torch.optim.SGD([candidates], lr=step_size, momentum=momentum)
    for _ in range(steps):
        features = act.value(candidates @ rows.T)
        coefficients = torch.linalg.solve(features @ features.T, features @ weights)
        loss = (weights - coefficients @ features).square().sum() / weights.square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            candidates.mul_(problem.norm / candidates.norm(dim=1, keepdim=True))
    return candidates.detach()


def iterates(method: HeavyBall, problem: Problem) -> list[Step]:
    return list(method.steps(problem))


@pytest.mark.parametrize(
    ("name", "step_size", "momentum"), [("relu", 5.0, 0.9), ("tanh", 2.0, 0.9), ("gelu", 5.0, 0.0)]
)
def test_twenty_steps_are_those_of_torchs_optimiser_on_the_dense_loss(
    name: str, step_size: float, momentum: float
) -> None:
    problem = problem_of(name)
    steps = iterates(HeavyBall(step_size=step_size, momentum=momentum, iterations=20, tolerance=0.0), problem)
    start = steps[0].candidates
    for count in (1, 2, 20):
        expected = dense_descent(problem, start, step_size, momentum, count)
        torch.testing.assert_close(steps[count].candidates, expected, atol=1e-9, rtol=0)
    assert (steps[20].candidates - start).norm(dim=1).min() > 0.1, "every row has moved"


@pytest.mark.parametrize("norm", [D**0.5, 1.0, 20.0])
def test_rows_start_at_their_norm_and_keep_it(norm: float) -> None:
    for step in iterates(HeavyBall(step_size=norm**2, iterations=15), problem_of(norm=norm)):
        torch.testing.assert_close(step.candidates.norm(dim=1), torch.full((N,), norm, dtype=torch.float64))


def test_the_start_is_uniform_on_the_sphere_and_depends_on_the_seed_alone() -> None:
    starts = [next(HeavyBall().steps(problem_of(seed=seed))).candidates for seed in range(200)]
    entries = torch.stack(starts)
    assert abs(float(entries.mean())) < 4.5 / entries.numel() ** 0.5
    assert float(entries.square().mean()) == pytest.approx(1)
    assert torch.equal(next(HeavyBall(step_size=1.0).steps(problem_of("tanh", seed=3))).candidates, starts[3])
    assert not torch.equal(starts[3], starts[4])


def test_it_counts_from_0_and_stops_at_the_limit() -> None:
    steps = iterates(HeavyBall(iterations=7, tolerance=0.0), problem_of())
    assert [step.iteration for step in steps] == list(range(8))


def test_it_stops_at_the_first_loss_within_the_tolerance() -> None:
    free = iterates(HeavyBall(iterations=60, tolerance=0.0), problem_of())
    tolerance = 1.0001 * min(step.loss for step in free[:40])
    first = next(step.iteration for step in free if step.loss <= tolerance)
    assert 0 < first < 60
    steps = iterates(HeavyBall(iterations=60, tolerance=tolerance), problem_of())
    assert [step.loss <= tolerance for step in steps] == [False] * first + [True]


def test_a_step_is_two_passes() -> None:
    problem = problem_of()
    steps = HeavyBall(iterations=10, tolerance=0.0).steps(problem)
    passes = [problem.loss.passes for _ in itertools.islice(steps, 11)]
    assert passes == [1 + 2 * step for step in range(11)]


def test_going_on_from_any_state_gives_the_same_bits() -> None:
    method = HeavyBall(iterations=12, tolerance=0.0)
    steps = iterates(method, problem_of())
    for step in steps:
        resumed = list(method.steps(problem_of(), step.state))
        assert [later.iteration for later in resumed] == list(range(step.iteration, 13))
        assert torch.equal(resumed[-1].candidates, steps[-1].candidates)
        assert [later.loss for later in resumed] == [later.loss for later in steps[step.iteration :]]
        assert resumed[-1].state.numbers == steps[-1].state.numbers, "passes are counted as if nothing had happened"


def test_the_surrogate_slope_changes_the_steps() -> None:
    plain, surrogate = (
        iterates(HeavyBall(iterations=3, tolerance=0.0, inactive_slope=slope), problem_of())[-1].candidates
        for slope in (0.0, 0.02)
    )
    assert 1e-6 < (plain - surrogate).abs().max() < 1


@pytest.mark.parametrize("seed", range(3))
def test_a_tiny_victim_is_recovered_in_float32(seed: int) -> None:
    data = load(DataConfig.parse(name="sphere", samples=2, dim=10, seed=seed))
    config = RandomFeaturesConfig(params=50 * 2 * 10, seed=seed)
    observation = train_random_features(config, data, draw_rows(config, 10)).observation
    found = run_attack(observation, HeavyBall(step_size=5.0, iterations=300), seed=seed).reconstruction
    assert found.candidates.dtype == torch.float32
    assert reconstruction_error(data.inputs, found.inputs) < 0.05
    assert found.loss <= 1e-7
    assert found.outcome is Outcome.PARTIAL, "it stops at a loss in which a small sample would have room"
    assert min(found.certificate.confidence) > 0.9
    assert found.held_out_loss is not None
    assert found.held_out_loss < 1e-6
    assert min(found.certificate.confidence) > 0.9


@pytest.mark.parametrize(("d", "step"), [(1, 20), (30, 20), (100, 20), (3072, 2000), (12_288, 8000)])
def test_the_published_steps_are_taken_at_the_published_dimensions(d: int, step: float) -> None:
    assert published_step(d) == pytest.approx(step, rel=1e-12)


def test_the_step_grows_with_the_dimension_without_a_jump() -> None:
    steps = [published_step(d) for d in range(90, 20_000, 7)]
    assert steps == sorted(steps)
    assert max(later / earlier for earlier, later in itertools.pairwise(steps)) < 1.12
    assert published_step(49_152) > 8000


def test_without_a_step_size_the_published_one_is_taken() -> None:
    published = iterates(HeavyBall(iterations=3), problem_of())[-1].candidates
    assert torch.equal(iterates(HeavyBall(step_size=20.0, iterations=3), problem_of())[-1].candidates, published)


@pytest.mark.parametrize(
    "fields",
    [
        *({"step_size": bad} for bad in (0.0, -1.0, math.nan, math.inf)),
        *({"momentum": bad} for bad in (-0.1, 1.0, math.nan)),
        *({"iterations": bad} for bad in (0, -1)),
    ],
)
def test_hyperparameters_that_make_no_sense_are_refused_in_one_line(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        HeavyBall(**fields)
    assert "\n" not in str(caught.value)


def test_the_number_of_samples_has_to_be_told() -> None:
    with pytest.raises(UsageError, match="--samples"):
        next(HeavyBall().steps(problem_of(samples=None)))


def test_a_row_that_vanished_stays_zero_and_others_get_their_norm() -> None:
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1e-15, 0.0]])
    assert to_norm(rows, 10.0).tolist() == [[0.0, 0.0], [6.0, 8.0], [10.0, 0.0]]
