import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.errors import UsageError
from exhume.metrics.errors import (
    CHANCE_STREAM,
    chance_error,
    evaluate,
    reconstruction_error,
    recovered_fraction,
    signed_error,
    span_residual,
)
from exhume.metrics.matching import to_norm

laws = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**31)
sizes = st.integers(1, 6)
SPAN_ROUNDING = 1e-5  # the residual is the root of a difference that rounding leaves at 1e-11

Metric = Callable[[Tensor, Tensor], float]
ERRORS: list[Metric] = [reconstruction_error, signed_error]
# On a line several assignments are equally good and differ in how many samples they recover.
METRICS_AND_SMALLEST_DIMENSION = [(reconstruction_error, 1), (signed_error, 1), (recovered_fraction, 2)]


def random_rows(generator: torch.Generator, count: int, d: int) -> Tensor:
    return torch.randn(count, d, generator=generator, dtype=torch.float64)


def near_and_far(generator: torch.Generator, n: int, m: int, d: int) -> tuple[Tensor, Tensor]:
    """Samples, and candidates that are close to some of them and far from others."""
    samples = random_rows(generator, n, d)
    candidates = random_rows(generator, m, d)
    close = min(n, m) // 2
    candidates[:close] = samples[:close] + 0.02 * candidates[:close]
    return samples, candidates


def random_signs(generator: torch.Generator, count: int) -> Tensor:
    return torch.where(torch.rand(count, 1, generator=generator) < 0.5, -1.0, 1.0).double()


def dense_span_residual(samples: Tensor, candidates: Tensor) -> float:
    """Eq. 167 by least squares on features that lie in memory."""
    n, p = samples.shape
    solution = torch.linalg.lstsq(candidates.T, samples.T, driver="gelsd").solution
    return (samples.T - candidates.T @ solution).norm(dim=0).sum().item() / (n * p**0.5)


def in_blocks(samples: Tensor, candidates: Tensor, width: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(samples.split(width, dim=1), candidates.split(width, dim=1), strict=True))


@pytest.mark.parametrize(("metric", "smallest"), METRICS_AND_SMALLEST_DIMENSION)
@laws
@given(seeds, sizes, sizes, st.integers(0, 5))
def test_order_of_samples_and_candidates_does_not_matter(
    metric: Metric, smallest: int, seed: int, n: int, m: int, more: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    samples, candidates = near_and_far(generator, n, m, smallest + more)
    shuffled = samples[torch.randperm(n, generator=generator)], candidates[torch.randperm(m, generator=generator)]
    assert metric(*shuffled) == pytest.approx(metric(samples, candidates), abs=1e-12)


@pytest.mark.parametrize("metric", [reconstruction_error, recovered_fraction])
@laws
@given(seeds, sizes, sizes, st.integers(2, 6))
def test_signs_of_rows_do_not_matter_if_they_are_free(metric: Metric, seed: int, n: int, m: int, d: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    samples, candidates = near_and_far(generator, n, m, d)
    flipped = random_signs(generator, n) * samples, random_signs(generator, m) * candidates
    assert metric(*flipped) == pytest.approx(metric(samples, candidates), abs=1e-12)


@laws
@given(seeds, sizes, st.integers(2, 6))
def test_a_wrong_sign_is_an_error_of_twice_the_norm_if_signs_are_not_free(seed: int, n: int, d: int) -> None:
    samples = random_rows(torch.Generator().manual_seed(seed), n, d)
    assert signed_error(samples[:1], -samples[:1]) == pytest.approx(2 * samples[0].norm().item() / d**0.5)
    assert signed_error(samples, -samples) > 0
    assert reconstruction_error(samples, -samples) == 0


@laws
@given(seeds, sizes, sizes, sizes)
def test_freedom_of_signs_never_costs(seed: int, n: int, m: int, d: int) -> None:
    rows = near_and_far(torch.Generator().manual_seed(seed), n, m, d)
    assert reconstruction_error(*rows) <= signed_error(*rows) + 1e-12


@pytest.mark.parametrize("metric", ERRORS)
@laws
@given(seeds, sizes, st.integers(0, 3), sizes, st.floats(1e-3, 1e3))
def test_errors_scale_with_both_sets(metric: Metric, seed: int, n: int, extra: int, d: int, t: float) -> None:
    samples, candidates = near_and_far(torch.Generator().manual_seed(seed), n, n + extra, d)
    assert metric(t * samples, t * candidates) == pytest.approx(t * metric(samples, candidates), rel=1e-9)


@pytest.mark.parametrize("metric", ERRORS)
@laws
@given(seeds, sizes, sizes)
def test_samples_themselves_have_no_error(metric: Metric, seed: int, n: int, d: int) -> None:
    samples = random_rows(torch.Generator().manual_seed(seed), n, d)
    assert metric(samples, samples.flip(0)) == 0
    assert recovered_fraction(samples, samples.flip(0)) == 1


@pytest.mark.parametrize("metric", ERRORS)
@laws
@given(seeds, sizes, sizes)
def test_sets_of_one_size_may_be_exchanged(metric: Metric, seed: int, n: int, d: int) -> None:
    samples, candidates = near_and_far(torch.Generator().manual_seed(seed), n, n, d)
    assert metric(samples, candidates) == pytest.approx(metric(candidates, samples), abs=1e-12)


@pytest.mark.parametrize("metric", ERRORS)
@laws
@given(seeds, sizes, st.integers(0, 3), sizes, sizes)
def test_more_candidates_never_hurt_once_there_are_as_many_as_samples(
    metric: Metric, seed: int, n: int, extra: int, more: int, d: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    samples, candidates = near_and_far(generator, n, n + extra, d)
    superset = torch.cat([candidates, random_rows(generator, more, d)])
    assert metric(samples, superset) <= metric(samples, candidates) + 1e-12


def test_below_that_a_far_candidate_is_worse_than_none_and_a_near_one_better() -> None:
    samples = 2**0.5 * torch.eye(2, dtype=torch.float64)
    alone = reconstruction_error(samples, samples[:1])
    assert alone == 0.5
    assert reconstruction_error(samples, samples[[0, 0]]) == pytest.approx(2**0.5 / 2)
    assert reconstruction_error(samples, torch.stack([samples[0], 0.9 * samples[1]])) < alone


@pytest.mark.parametrize("metric", ERRORS)
@laws
@given(seeds, st.integers(2, 6), st.integers(2, 6))
def test_a_duplicate_does_not_stand_for_a_second_sample(metric: Metric, seed: int, n: int, d: int) -> None:
    samples = random_rows(torch.Generator().manual_seed(seed), n, d)
    candidates = samples.clone()
    candidates[0] = samples[1]
    # The best assignment replaces sample 0 by sample 1 directly: any detour is longer, by the triangle inequality.
    lost = metric(samples[:1], samples[1:2]) / n
    assert metric(samples, candidates) == pytest.approx(lost, rel=1e-9)
    assert lost > 0


def test_recovered_means_closer_than_a_tenth() -> None:
    samples = 10 * torch.eye(100, dtype=torch.float64)[:3]
    shift = torch.zeros_like(samples)
    shift[:, 50] = torch.tensor([0.99, 1.01, 0.0])
    assert recovered_fraction(samples, samples + shift) == pytest.approx(2 / 3)
    assert recovered_fraction(samples, samples[:1]) == pytest.approx(1 / 3)
    assert recovered_fraction(samples, samples[:0]) == 0


def test_chance_is_the_error_of_explicit_random_candidates() -> None:
    samples = random_rows(torch.Generator().manual_seed(0), 4, 5)
    for m in (0, 2, 4, 7):
        generator = np.random.default_rng((CHANCE_STREAM, 11))
        guesses = [to_norm(torch.from_numpy(generator.standard_normal((m, 5))), 5**0.5) for _ in range(3)]
        for signed, metric in ((False, reconstruction_error), (True, signed_error)):
            expected = sum(metric(samples, guess) for guess in guesses) / 3
            assert chance_error(samples, m, seed=11, draws=3, signed=signed) == pytest.approx(expected, rel=1e-9)


def test_chance_has_its_closed_form_on_the_circle_and_its_limit_in_high_dimension() -> None:
    on_circle = torch.tensor([[2**0.5, 0.0]])
    assert chance_error(on_circle, 1, 0, draws=1000) == pytest.approx(8 / math.pi * (1 - 0.5**0.5), abs=0.05)
    assert chance_error(on_circle, 1, 0, draws=1000, signed=True) == pytest.approx(4 / math.pi, abs=0.07)
    assert chance_error(torch.ones(1, 5000), 1, 0, signed=True) == pytest.approx(2**0.5, abs=0.02)


@laws
@given(seeds, sizes, sizes, sizes)
def test_chance_depends_on_seed_and_not_on_the_order_of_samples(seed: int, n: int, m: int, d: int) -> None:
    samples = random_rows(torch.Generator().manual_seed(seed), n, d)
    for signed in (False, True):
        assert chance_error(samples.flip(0), m, seed, 2, signed) == pytest.approx(
            chance_error(samples, m, seed, 2, signed), abs=1e-12
        )
    if d > 1:
        assert chance_error(samples, m, seed, 1, True) != chance_error(samples, m, seed + 1, 1, True)


@laws
@given(seeds, sizes, st.integers(0, 6), st.integers(7, 20), st.integers(1, 25))
def test_span_residual_agrees_with_least_squares(seed: int, n: int, m: int, p: int, width: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    samples, candidates = random_rows(generator, n, p), random_rows(generator, m, p)
    candidates = torch.cat([candidates, -2 * candidates[: m // 2], torch.zeros(1, p, dtype=torch.float64)])
    expected = dense_span_residual(samples, candidates)
    assert span_residual(iter(in_blocks(samples, candidates, width)), p) == pytest.approx(expected, abs=1e-6)


@laws
@given(seeds, sizes, sizes, st.integers(1, 20), st.floats(1e-4, 1e4))
def test_span_residual_obeys_its_laws(seed: int, n: int, m: int, p: int, t: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    samples, candidates = random_rows(generator, n, p), random_rows(generator, m, p)
    expected = span_residual([(samples, candidates)], p)
    shuffled = samples[torch.randperm(n, generator=generator)], candidates[torch.randperm(m, generator=generator)]
    assert span_residual([shuffled], p) == pytest.approx(expected, abs=SPAN_ROUNDING)
    rescaled = random_signs(generator, m) * candidates
    rescaled[0] *= t
    assert span_residual([(samples, rescaled)], p) == pytest.approx(expected, abs=SPAN_ROUNDING)
    assert span_residual([(t * samples, candidates)], p) == pytest.approx(t * expected, abs=SPAN_ROUNDING * t)
    superset = torch.cat([candidates, random_rows(generator, 1, p)])
    assert span_residual([(samples, superset)], p) <= expected + 1e-6
    assert span_residual([(samples, samples)], p) == pytest.approx(0, abs=SPAN_ROUNDING)


def test_span_residual_without_candidates_is_the_mean_length_of_the_features() -> None:
    samples = torch.full((2, 9), 3.0)
    assert span_residual([(samples, samples[:0])], 9) == pytest.approx(3.0)


def test_span_residual_refuses_blocks_that_are_not_p_rows() -> None:
    with pytest.raises(UsageError, match="p = 4 >= 1 rows in the blocks, found 3"):
        span_residual([(torch.ones(1, 3), torch.ones(1, 3))], 4)
    with pytest.raises(UsageError, match="found 0"):
        span_residual([], 0)


@pytest.mark.parametrize("m", [0, 3, 5, 8])
def test_evaluation_gathers_the_single_metrics(m: int) -> None:
    samples, candidates = near_and_far(torch.Generator().manual_seed(1), 5, m, 6)
    found = evaluate(samples, candidates, in_blocks(samples, candidates, 4), p=6, seed=3)
    assert (found.n, found.m) == (5, m)
    assert found.error == reconstruction_error(samples, candidates) == found.distances.mean().item()
    assert found.signed_error == signed_error(samples, candidates)
    assert found.chance_error == chance_error(samples, m, 3)
    assert found.signed_chance_error == chance_error(samples, m, 3, signed=True)
    assert found.recovered_fraction == recovered_fraction(samples, candidates)
    assert found.span_residual == pytest.approx(dense_span_residual(samples, candidates), abs=1e-6)
    assert evaluate(samples, candidates).span_residual is None


def test_directions_only_ignores_norms_and_the_default_does_not() -> None:
    generator = torch.Generator().manual_seed(0)
    samples = random_rows(generator, 4, 6)
    candidates = samples * torch.tensor([[0.1], [2.0], [-3.0], [1.0]])
    assert evaluate(samples, candidates, directions_only=True).error == pytest.approx(0, abs=1e-12)
    assert evaluate(samples, candidates).error > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_data_drawn_with_the_same_seed_does_not_meet_itself_in_the_chance_level(dtype: torch.dtype) -> None:
    of_torch = torch.randn(4, 500, generator=torch.Generator().manual_seed(5), dtype=dtype)
    of_numpy = torch.from_numpy(np.random.default_rng(5).standard_normal((4, 500)))
    for samples in (of_torch, of_numpy):
        assert chance_error(samples, 4, seed=5, draws=1) > 1.3


def test_random_candidates_evaluate_to_about_the_chance_level() -> None:
    generator = torch.Generator().manual_seed(0)
    samples, candidates = to_norm(random_rows(generator, 60, 100), 10.0).split([20, 40])
    found = evaluate(samples, candidates)
    assert found.error == pytest.approx(found.chance_error, rel=0.02)
    assert found.signed_error == pytest.approx(found.signed_chance_error, rel=0.02)
    assert found.recovered_fraction == 0


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="feature_blocks and p together"):
        evaluate(torch.ones(1, 2), torch.ones(1, 2), p=3)
    with pytest.raises(UsageError, match="m = -1"):
        chance_error(torch.ones(1, 2), -1, 0)
    with pytest.raises(UsageError, match="a seed >= 0, found -1"):
        chance_error(torch.ones(1, 2), 1, -1)
