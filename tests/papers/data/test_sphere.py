import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume_papers.data.sphere import draw_sphere


@settings(deadline=None)
@given(
    samples=st.integers(1, 12),
    dim=st.integers(1, 12),
    rank=st.none() | st.integers(1, 12),
    seed=st.integers(0, 2**63 - 1),
)
def test_rows_have_norm_sqrt_d(samples: int, dim: int, rank: int | None, seed: int) -> None:
    drawn = draw_sphere(samples, dim, None if rank is None else min(rank, dim), "linear", 0.25, seed)
    torch.testing.assert_close(drawn.rows.norm(dim=1), torch.full((samples,), math.sqrt(dim), dtype=torch.float64))
    assert drawn.rows.shape == (samples, dim)
    assert drawn.labels.shape == (samples,)


@pytest.mark.parametrize("rank", [1, 3, 10])
def test_rows_span_exactly_the_subspace(rank: int) -> None:
    assert torch.linalg.matrix_rank(draw_sphere(30, 10, rank, "linear", 0.25, 0).rows).item() == rank


def test_rows_without_subspace_span_everything() -> None:
    assert torch.linalg.matrix_rank(draw_sphere(30, 10, None, "linear", 0.25, 0).rows).item() == 10


@pytest.mark.parametrize("subspace", [None, 3])
def test_the_seed_alone_decides(subspace: int | None) -> None:
    first, again, other = (draw_sphere(5, 6, subspace, "linear", 0.25, seed) for seed in (3, 3, 4))
    assert torch.equal(first.rows, again.rows)
    assert torch.equal(first.labels, again.labels)
    assert not torch.isclose(first.rows, other.rows).any()
    assert not torch.isclose(first.labels, other.labels).any()


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    draw_sphere(5, 6, 2, "linear", 0.25, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_differ_from_plain_gaussians_of_the_same_seed() -> None:
    rows = draw_sphere(20, 30, None, "linear", 0.25, 5).rows
    plain = torch.randn(20, 30, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    cosines = torch.nn.functional.cosine_similarity(rows, plain, dim=1)
    assert cosines.abs().max() < 0.8


def test_noiseless_labels_are_linear_in_the_rows() -> None:
    drawn = draw_sphere(40, 10, None, "linear", 0.0, 1)
    fit = torch.linalg.lstsq(drawn.rows, drawn.labels[:, None]).solution
    torch.testing.assert_close(drawn.rows @ fit, drawn.labels[:, None])


def test_noise_has_the_variance_asked_for() -> None:
    clean, noisy = (draw_sphere(20_000, 5, None, "linear", noise, 1) for noise in (0.0, 0.25))
    assert torch.equal(clean.rows, noisy.rows)
    assert (noisy.labels - clean.labels).var().item() == pytest.approx(0.25, rel=0.05)


def test_the_direction_has_variance_one_over_d() -> None:
    drawn = draw_sphere(200, 100, None, "linear", 0.0, 1)
    direction = torch.linalg.lstsq(drawn.rows, drawn.labels[:, None]).solution
    assert direction.square().sum().item() == pytest.approx(1.0, rel=0.5)


def test_sign_labels_are_the_signs_of_the_linear_ones() -> None:
    linear, sign = draw_sphere(50, 8, None, "linear", 0.0, 2), draw_sphere(50, 8, None, "sign", 0.0, 2)
    assert torch.equal(sign.rows, linear.rows)
    assert torch.equal(sign.labels, linear.labels.sign())
    assert set(sign.labels.tolist()) == {-1.0, 1.0}


def test_rows_are_uniform_to_second_order() -> None:
    rows = draw_sphere(50_000, 4, None, "linear", 0.25, 0).rows
    torch.testing.assert_close(rows.mean(dim=0), torch.zeros(4, dtype=torch.float64), atol=0.02, rtol=0)
    torch.testing.assert_close(rows.T @ rows / len(rows), torch.eye(4, dtype=torch.float64), atol=0.02, rtol=0)
