"""What the phases of an attack work with: rows, floors, structure in a residual."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.search_context import SearchContext, capacity
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

D, N = 12, 4


def bench_of(
    p: int = 2000, outputs: int = 1, rounding: float = 0.0, noise: float = 0.0
) -> tuple[SearchContext, torch.Tensor]:
    """A planted problem on the bench, and its samples."""
    stream = torch.Generator().manual_seed(3)
    samples = to_norm(torch.randn(N, D, generator=stream), math.sqrt(D))
    features = RidgeFeatures(hold(DrawnRows(1, p, D)), activation("relu"))
    weights = torch.randn(outputs, N, generator=stream) @ features(samples)
    weights = weights + noise * weights.std() * torch.randn(weights.shape, generator=stream)
    loss = SpanLoss(features, weights)
    problem = Problem(
        loss=loss,
        coarse=loss,
        norm=math.sqrt(D),
        samples=None,
        seed=0,
        steering_loss=lambda candidates, coefficients=None: None,
        rounding=rounding,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return SearchContext(SplitNewton(), problem), samples


@given(st.integers(1, 10**9), st.integers(1, 10**5), st.floats(0.05, 1))
def test_the_capacity_is_the_largest_number_that_leaves_enough_equations_but_two_at_least(
    p: int, d: int, share: float
) -> None:
    m = capacity(p, d, share)
    assert m >= 2
    assert m == 2 or m * d <= share * p * (1 + 1e-12)
    assert (m + 1) * d > share * p * (1 - 1e-12)


def test_each_output_is_one_more_equation_a_row_as_far_as_there_are_samples() -> None:
    one, three, ten = (bench_of(outputs=outputs)[0] for outputs in (1, 3, 10))
    assert one.capacity(0.75) == 125
    assert three.capacity(0.75) == 1500 * 3 // (D - 1 + 3)
    assert ten.capacity(0.75) == 1500 * N // (D - 1 + N)  # of ten outputs of four samples, six are redundant
    assert ten.rows_for(60, 5.0).features.p == 1024  # 5 x 12 x 60 / 4 numbers, in whole blocks
    assert one.rows_for(100, 5.0).features.p == 2000  # all there are


def test_the_affine_part_is_left_out_where_it_would_be_much_of_the_fit() -> None:
    many, few = bench_of(p=5 * D)[0], bench_of(p=5 * D - 1)[0]
    assert many.dense
    assert many.part(1).affine is not None
    assert not few.dense
    assert few.part(1).affine is None
    assert few.small, "conjugate-gradient products stay"


def test_weights_that_show_rounding_are_explained_at_its_level_but_not_while_a_sample_is_missing() -> None:
    noise = 1e-2
    bench, samples = bench_of(noise=noise, rounding=noise**2)
    silent, _ = bench_of(noise=noise)
    assert bench.explained(bench.fit(samples))
    assert not silent.explained(silent.fit(samples))
    assert not bench.explained(bench.fit(samples[1:]))


@pytest.mark.parametrize("missing", [0, 1])
def test_a_residual_is_structured_where_a_sample_is_missing(missing: int) -> None:
    bench, samples = bench_of(noise=1e-3)
    assert bench.structured(bench.fit(samples[missing:])) == bool(missing)
