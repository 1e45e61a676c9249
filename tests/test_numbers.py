"""Tiny problems of every shape, precision and scale: an attack ends in an outcome and refuses no valid one."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import exhume
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.errors import ExhumeError
from exhume.observation import Observation
from exhume.reconstruction import Outcome, Reconstruction

SIZES = st.integers(1, 5)
SCALES = st.floats(-30, 30).map(lambda exponent: 10.0**exponent)

METHODS: dict[str, AnyMethod] = {"split-newton": SplitNewton(iterations=2), "heavy-ball": HeavyBall(iterations=2)}


def victim(n: int, d: int, p: int, k: int, scale: float, dtype: torch.dtype, seed: int, activation: str) -> Observation:
    """Weights that are a combination of the features of n rows on the sphere, times a scale."""
    stream = torch.Generator().manual_seed(seed)
    rows = torch.randn(p, d, generator=stream, dtype=torch.float64) / math.sqrt(d)
    inputs = torch.randn(n, d, generator=stream, dtype=torch.float64)
    inputs *= math.sqrt(d) / inputs.norm(dim=1, keepdim=True)
    coefficients = torch.randn(k, n, generator=stream, dtype=torch.float64)
    features = inputs @ rows.T
    features = features.clamp_min(0) if activation == "relu" else torch.tanh(features)
    weights = coefficients @ features
    largest = float(weights.abs().max())
    weights = torch.randn(k, p, generator=stream, dtype=torch.float64) if largest < 1e-3 else weights
    return exhume.observe_features(rows.to(dtype), (weights * scale).to(dtype), activation)


def check_finite(found: Reconstruction, d: int, k: int) -> None:
    """No NaN anywhere, and the summary can be written as JSON."""
    assert found.candidates.shape[1] == d
    assert found.coefficients.shape == (len(found.candidates), k)
    assert torch.isfinite(found.candidates).all()
    assert torch.isfinite(found.coefficients).all()
    assert all(0 <= value <= 1 for value in found.certificate.confidence)
    assert found.outcome.advice
    json.dumps(found.summary(), allow_nan=False)


def attack(observation: Observation, method: AnyMethod, **options: Any) -> Reconstruction | None:
    """None where the attack said in one line why it cannot be made."""
    try:
        return run_attack(observation, method, limits=Limits(seconds=5.0), **options).reconstruction
    except ExhumeError as problem:
        reason = str(problem)
    assert len(reason.splitlines()) == 1
    assert "found" in reason
    return None


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    n=SIZES,
    d=SIZES,
    surplus=st.integers(-4, 20),
    k=SIZES,
    scale=SCALES,
    double=st.booleans(),
    seed=st.integers(0, 1000),
    method=st.sampled_from(["split-newton", "heavy-ball"]),
    activation=st.sampled_from(["relu", "tanh"]),
)
@example(n=1, d=1, surplus=0, k=1, scale=1.0, double=False, seed=0, method="split-newton", activation="relu")
@example(n=5, d=1, surplus=0, k=5, scale=1e30, double=False, seed=1, method="split-newton", activation="tanh")
@example(n=5, d=3, surplus=-4, k=2, scale=1e-30, double=True, seed=2, method="heavy-ball", activation="relu")
@example(n=1, d=5, surplus=30, k=1, scale=1e-30, double=False, seed=3, method="split-newton", activation="relu")
def test_every_shape_precision_and_scale_ends_in_an_outcome(
    n: int, d: int, surplus: int, k: int, scale: float, double: bool, seed: int, method: str, activation: str
) -> None:
    """p runs from below n over n to well above d n."""
    dtype = torch.float64 if double else torch.float32
    p = max(1, n + surplus)
    observation = victim(n, d, p, k, scale, dtype, seed, activation)
    samples = n if method == "heavy-ball" else None
    chosen = METHODS[method]
    found = attack(observation.knowing(samples), chosen, dtype=dtype)
    assert found is not None, "a valid problem was refused"
    check_finite(found, d, k)


CORNERS = [(1, 1, 4, 1), (3, 1, 6, 2), (1, 4, 12, 3), (4, 2, 3, 4), (3, 3, 3, 5), (3, 3, 3, 1)]
"""n, d, p, k: one sample, one dimension, p < n, p = n, one to five outputs."""


@pytest.mark.parametrize("method", ["split-newton", "heavy-ball"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("n", "d", "p", "k"), CORNERS)
def test_no_valid_problem_is_refused_whatever_its_shape_precision_and_scale(
    n: int, d: int, p: int, k: int, dtype: torch.dtype, scale: float, method: str
) -> None:
    observation = victim(n, d, p, k, scale, dtype, 0, "relu").knowing(n if method == "heavy-ball" else None)
    found = attack(observation, METHODS[method], dtype=dtype)
    assert found is not None
    check_finite(found, d, k)


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(exponent=st.integers(-30, 30), seed=st.integers(0, 3))
@example(exponent=-30, seed=0)
@example(exponent=30, seed=0)
def test_the_scale_of_the_weights_changes_the_coefficients_and_nothing_else(exponent: int, seed: int) -> None:
    method = SplitNewton(iterations=8)
    plain = attack(victim(2, 3, 40, 1, 1.0, torch.float64, seed, "relu"), method, dtype=torch.float64)
    scaled = attack(victim(2, 3, 40, 1, 10.0**exponent, torch.float64, seed, "relu"), method, dtype=torch.float64)
    assert plain is not None
    assert scaled is not None
    assert scaled.outcome is plain.outcome
    torch.testing.assert_close(scaled.candidates, plain.candidates, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scaled.coefficients / 10.0**exponent, plain.coefficients, rtol=1e-6, atol=1e-6)


@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(k=SIZES, d=SIZES, exponent=st.integers(-30, 30), seed=st.integers(0, 100))
def test_networks_of_every_scale_end_in_an_outcome(k: int, d: int, exponent: int, seed: int) -> None:
    from exhume.features.module import penultimate_features
    from exhume.observation import Knowledge

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(d, 12), nn.Tanh(), nn.Linear(12, k))
    features = penultimate_features(model, "2", (d,))
    inputs = torch.randn(2, d)
    weights = torch.randn(k, 2) @ features(inputs).detach() * 10.0**exponent
    found = attack(Observation(features, weights, Knowledge(samples=2)), ModuleNewton(iterations=2))
    assert found is not None, "a valid problem was refused"
    check_finite(found, d, k)


@pytest.mark.parametrize("scale", [0.0, 1e-45, 3e38])
def test_weights_that_are_zero_denormal_or_at_the_end_of_their_range_are_no_fault(scale: float) -> None:
    observation = victim(2, 3, 30, 1, 1.0, torch.float32, 0, "relu")
    weights = (observation.weights.double() / observation.weights.abs().max() * scale).float()
    found = attack(replace(observation, weights=weights), SplitNewton(iterations=2))
    assert found is not None or scale == 0, "a valid problem was refused"
    if found is not None:
        check_finite(found, 3, 1)


class Failing(HeavyBall):
    """A method whose solve fails at the third iterate."""

    def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
        for step in super().steps(problem, resume):
            if step.iteration >= 3:
                yield replace(step, loss=math.nan, candidates=step.candidates * math.nan)
                return
            yield step


def test_a_solve_that_fails_on_the_way_keeps_the_last_iterate_and_says_so() -> None:
    observation = victim(2, 3, 40, 1, 1.0, torch.float32, 0, "relu").knowing(2)
    done = run_attack(observation, Failing(iterations=5))
    found = done.reconstruction
    check_finite(found, 3, 1)
    assert found.outcome is not Outcome.RECOVERED
    assert found.iterations == 2
    assert found.summary()["failure"] == "the loss was nan at iteration 3; the candidates are those of iteration 2"


def test_a_solve_that_fails_at_once_is_one_line_with_a_way_out() -> None:
    class FailingAtOnce(HeavyBall):
        def steps(self, problem: Problem, resume: State | None = None) -> Iterator[Step]:
            for step in super().steps(problem, resume):
                yield replace(step, loss=math.inf)

    observation = victim(2, 3, 40, 1, 1.0, torch.float32, 0, "relu").knowing(2)
    with pytest.raises(ExhumeError, match=r"expected a finite loss, found inf at iteration 0; .*float64"):
        run_attack(observation, FailingAtOnce(iterations=5))


@pytest.mark.parametrize("name", ["weights", "rows"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_refused_at_the_door(name: str, value: float) -> None:
    weights, rows = torch.ones(1, 12), torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    chosen: Tensor = {"weights": weights, "rows": rows}[name]
    chosen[0, 1] = value
    with pytest.raises(ExhumeError, match="expected finite"):
        run_attack(exhume.observe_features(rows, weights, "relu"), SplitNewton(iterations=1))
