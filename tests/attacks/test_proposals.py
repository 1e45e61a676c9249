import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.proposals import moment_proposals, pooled_proposals, random_rows
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold

D = 20
NORM = D**0.5


class SmallBlocks(HeldRows):
    """Held rows in blocks of 512, so that every sum runs over several of them."""

    @property
    def block_rows(self) -> int:
        return 512


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def planted(
    name: str, known: int, missing: int, coefficients: Tensor, p: int = 8000
) -> tuple[SpanLoss, Tensor, Tensor]:
    """The loss with the affine part, the residual of a fit that lacks samples, and the samples that it lacks."""
    features = RidgeFeatures(SmallBlocks(hold(DrawnRows(2, p, D), dtype=torch.float64).values), activation(name))
    samples = to_norm(normal(known + missing, D, seed=3), NORM)
    loss = SpanLoss(features, coefficients @ features(samples), torch.float64).part(p, affine=True)
    residual = loss.fit(samples[:known]).residual if known else loss.bare_residual()
    return loss, residual, samples[known:]


def cosines(rows: Tensor, samples: Tensor) -> Tensor:
    return (rows @ samples.T).abs() / NORM**2


@pytest.mark.parametrize("known", [0, 1, 3])
@pytest.mark.parametrize("name", ["relu", "gelu", "softplus", "relu+tanh"])
def test_the_first_direction_is_the_missing_sample(name: str, known: int) -> None:
    loss, residual, missing = planted(name, known, 1, torch.tensor([[1.0, -1.5, 0.7, 1.2][: known + 1]]).double())
    found = moment_proposals(loss, residual, NORM)
    assert cosines(found.rows[:1], missing).item() > 0.8
    assert found.outside >= 1


@pytest.mark.parametrize("k", [2, 3])
def test_several_missing_samples_show_in_any_of_several_outputs(k: int) -> None:
    coefficients = torch.zeros(k, 4, dtype=torch.float64)
    coefficients[0, :3] = torch.tensor([1.0, -1.0, 0.8])
    coefficients[1, 3] = 1.0
    coefficients[1, 0] = 0.5
    loss, residual, missing = planted("relu", 1, 3, coefficients)
    found = moment_proposals(loss, residual, NORM)
    directions = torch.linalg.qr(found.rows[:3].T).Q
    assert (missing @ directions).norm(dim=1).min() > 0.8 * NORM
    assert 3 <= found.outside <= D


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_noise_has_no_direction_outside(seed: int, k: int) -> None:
    loss, _, _ = planted("relu", 0, 1, torch.ones(1, 1, dtype=torch.float64))
    assert moment_proposals(loss, normal(k, 8000, seed=seed), NORM).outside == 0


def test_nothing_left_gives_directions_all_the_same_and_none_outside() -> None:
    loss, _, _ = planted("relu", 0, 1, torch.ones(1, 1, dtype=torch.float64))
    found = moment_proposals(loss, torch.zeros(1, 8000, dtype=torch.float64), NORM)
    assert found.outside == 0
    torch.testing.assert_close(found.rows @ found.rows.T, D * torch.eye(D, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_proposals_are_orthogonal_rows_of_the_norm_and_type_that_were_asked_for(dtype: torch.dtype) -> None:
    loss, residual, _ = planted("relu", 0, 2, torch.ones(1, 2, dtype=torch.float64))
    found = moment_proposals(loss, residual.to(dtype), 7.0)
    assert found.rows.dtype == dtype
    torch.testing.assert_close(found.rows @ found.rows.T, 49 * torch.eye(D, dtype=dtype), atol=1e-3, rtol=0)


def test_the_moment_is_its_formula() -> None:
    loss, residual, _ = planted("gelu", 1, 2, torch.ones(2, 3, dtype=torch.float64))
    rows = loss.features.rows.block(0, 8000)
    directions = rows / rows[:512].square().mean().sqrt()  # one block tells the scale
    squares = torch.zeros(D, D, dtype=torch.float64)
    for output in residual:
        moment = torch.einsum("k,ki,kj->ij", output, directions, directions) - output.sum() * torch.eye(D)
        squares += moment @ moment
    values, vectors = torch.linalg.eigh(squares)
    found = moment_proposals(loss, residual, NORM)
    assert (cosines(found.rows[:3], NORM * vectors.flip(1).T[:3]).diagonal() > 1 - 1e-6).all()
    assert found.outside == int((values > (2 * 1.1) ** 2 * D * residual.square().sum()).sum())


@pytest.mark.parametrize("known", [0, 2])
@pytest.mark.parametrize("name", ["tanh", "erf", "relu"])
def test_the_pool_finds_a_missing_sample_also_where_the_moment_is_blind(name: str, known: int) -> None:
    coefficients = torch.tensor([[1.0, -1.5, 2.0][: known + 1]]).double()
    loss, residual, missing = planted(name, known, 1, coefficients, p=16_000)
    found = pooled_proposals(loss, residual, NORM, stream())
    assert cosines(found.rows[:3], missing).max() > 0.8
    torch.testing.assert_close(found.rows.norm(dim=1), torch.full((len(found.rows),), NORM, dtype=torch.float64))
    alike = (cosines(found.rows, found.rows) - torch.eye(len(found.rows))).max()
    assert alike < 0.7, "what points the same way is proposed once"


def test_the_pool_depends_on_its_stream_alone_and_survives_nothing_to_find() -> None:
    loss, residual, _ = planted("tanh", 0, 1, torch.ones(1, 1, dtype=torch.float64))
    one, same = (pooled_proposals(loss, residual, NORM, stream(1)).rows for _ in range(2))
    assert torch.equal(one, same)
    nothing = pooled_proposals(loss, torch.zeros_like(residual), NORM, stream())
    assert torch.isfinite(nothing.rows).all()


@given(st.integers(1, 20), st.integers(1, 30), st.floats(0.1, 100))
def test_random_rows_have_their_norm_and_come_again_from_the_same_stream(count: int, d: int, norm: float) -> None:
    like = torch.zeros(0, dtype=torch.float32)
    rows = random_rows(count, d, norm, stream(5), like)
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows.norm(dim=1), torch.full((count,), norm), rtol=1e-5, atol=0)
    assert torch.equal(rows, random_rows(count, d, norm, stream(5), like))
    assert not torch.equal(rows[:, :2], random_rows(count, d, norm, stream(6), like)[:, :2]) or d == 1
