import itertools

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.errors import ExhumeError, UsageError
from exhume.metrics import matching
from exhume.metrics.matching import duplicates, match, to_norm

laws = settings(deadline=None, max_examples=40)


@st.composite
def two_sets(draw: st.DrawFn, largest: int = 6) -> tuple[Tensor, Tensor]:
    """Samples and candidates; small whole numbers, so that ties, equal rows and rows of zeros are common."""
    n, m, d = draw(st.integers(1, largest)), draw(st.integers(0, largest)), draw(st.integers(1, 3))
    entries = st.integers(-3, 3)
    flat = draw(st.lists(entries, min_size=(n + m) * d, max_size=(n + m) * d))
    rows = torch.tensor(flat, dtype=torch.float64).reshape(n + m, d)
    return rows[:n], rows[n:]


def smallest_total_by_trying_everything(samples: Tensor, candidates: Tensor, sign_free: bool) -> float:
    """Sum of distances over √d of the best of all injections and signs."""
    n, m, d = len(samples), len(candidates), samples.shape[1]
    k = min(n, m)
    signs = (1.0, -1.0) if sign_free else (1.0,)
    best = torch.inf
    for chosen, order in itertools.product(itertools.combinations(range(n), k), itertools.permutations(range(m), k)):
        total = 0.0
        for i, j in zip(chosen, order, strict=True):
            total += min((samples[i] - s * candidates[j]).square().sum().sqrt().item() for s in signs)
        best = min(best, total)
    return best / d**0.5 + (n - k)


@laws
@given(two_sets(largest=4), st.booleans())
def test_assignment_is_the_best_of_all(sets: tuple[Tensor, Tensor], sign_free: bool) -> None:
    samples, candidates = sets
    found = match(samples, candidates, sign_free).distance.sum().item()
    assert found == pytest.approx(smallest_total_by_trying_everything(samples, candidates, sign_free), abs=1e-12)


def test_assignment_is_the_best_of_all_for_five_generic_rows() -> None:
    generator = torch.Generator().manual_seed(3)
    samples, candidates = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    for sign_free in (True, False):
        found = match(samples, candidates, sign_free).distance.sum().item()
        assert found == pytest.approx(smallest_total_by_trying_everything(samples, candidates, sign_free), abs=1e-12)


@laws
@given(two_sets(), st.booleans())
def test_fields_describe_one_to_one_pairs(sets: tuple[Tensor, Tensor], sign_free: bool) -> None:
    samples, candidates = sets
    found = match(samples, candidates, sign_free)
    used = found.candidate[found.matched].tolist()
    assert len(used) == len(set(used)) == min(len(samples), len(candidates))
    assert sign_free or bool((found.sign == 1).all())
    for i, j in enumerate(found.candidate.tolist()):
        if j == -1:
            assert [found.sign[i].item(), found.distance[i].item()] == [1, 1]
        else:
            gap = samples[i] - found.sign[i] * candidates[j]
            assert found.distance[i].item() == pytest.approx(gap.norm().item() / samples.shape[1] ** 0.5, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rows_are_at_distance_zero_exactly(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    samples = 1e3 + torch.randn(20, 300, generator=generator, dtype=dtype)
    order = torch.randperm(20, generator=generator)
    signs = torch.where(torch.rand(20, 1, generator=generator) < 0.5, -1, 1).to(dtype)
    found = match(samples, (signs * samples)[order], sign_free=True)
    assert torch.equal(found.distance, torch.zeros(20, dtype=torch.float64))
    assert torch.equal(order[found.candidate], torch.arange(20))
    assert torch.equal(found.sign, signs.flatten().double())


def test_no_candidates_leave_every_sample_at_one() -> None:
    found = match(torch.ones(3, 2), torch.ones(0, 2), sign_free=True)
    assert found.candidate.tolist() == [-1, -1, -1]
    assert found.distance.tolist() == [1, 1, 1]


def test_broken_input_is_refused_with_what_was_found() -> None:
    with pytest.raises(UsageError, match="at least one sample"):
        match(torch.ones(0, 2), torch.ones(1, 2), sign_free=True)
    with pytest.raises((UsageError, jaxtyping.TypeCheckError), match=r"samples' dimension 2, found 3|Type-check error"):
        match(torch.ones(1, 2), torch.ones(1, 3), sign_free=True)
    with pytest.raises(ExhumeError, match=r"candidates, found NaN or infinity in 1 of 2 rows, the first is row 1"):
        match(torch.ones(2, 2), torch.tensor([[1.0, 1.0], [1.0, torch.nan]]), sign_free=True)


def test_to_norm_keeps_directions_and_zero_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 5, generator=generator) * torch.tensor([1, 1e-30, 1e30, 1, 1, 0])[:, None]
    scaled = to_norm(rows, 3.0)
    assert scaled.dtype == rows.dtype
    torch.testing.assert_close(scaled.norm(dim=1), torch.tensor([3.0, 3, 3, 3, 3, 0]))
    torch.testing.assert_close(to_norm(7 * rows, 3.0), scaled)
    assert torch.equal(scaled.sign(), rows.sign())


def test_duplicates_are_found_up_to_sign_and_scale_and_through_neighbours() -> None:
    angles = torch.tensor([0.0, 0.04, 0.08, 1.0, torch.pi + 1.0, 2.0], dtype=torch.float64)
    rows = torch.stack([angles.cos(), angles.sin()], dim=1) * torch.tensor([1, 5, 1, 2, 1, 1])[:, None]
    rows = torch.cat([rows, torch.zeros(2, 2, dtype=torch.float64)])
    assert duplicates(rows) == ((0, 1, 2), (3, 4))
    assert duplicates(rows, cosine=0.99999) == ((3, 4),)
    assert duplicates(rows[:0]) == ()


@laws
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_duplicates_follow_the_order_of_the_candidates(seed: int, m: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(m, 4, generator=generator)[torch.randint(m, (m,), generator=generator)]
    order = torch.randperm(m, generator=generator)
    moved = {frozenset(order[list(group)].tolist()) for group in duplicates(-rows[order])}
    assert moved == {frozenset(group) for group in duplicates(rows)}


@pytest.mark.parametrize("cosine", [0.0, 1.0, float("nan")])
def test_a_cosine_outside_its_range_is_refused(cosine: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        duplicates(torch.ones(2, 2), cosine)


def test_distances_of_many_rows_are_those_of_differences_to_eight_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(30, 50, generator=stream, dtype=torch.float64)
    noise = torch.randn(30, 50, generator=stream, dtype=torch.float64)
    sizes = torch.logspace(-15, 1, 28, dtype=torch.float64)[:, None]
    y = torch.cat([x[:2], x[2:] + sizes * noise[2:]])
    by_differences = matching._distances(x, y)
    monkeypatch.setattr(matching, "FEW_NUMBERS", 100)
    assert torch.equal(matching._distances(x, y) == 0, by_differences == 0)
    assert torch.allclose(matching._distances(x, y), by_differences, rtol=1e-8, atol=0)
