import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.attacks.single_layer.sign_search import SignForm, likely_signs


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted(m: int, d: int, seed: int) -> tuple[SignForm, Tensor]:
    """Signs whose weighted sum of m random rows is known."""
    rows, coefficients, signs = normal(m, d, seed=seed), normal(m, seed=seed + 1), normal(m, seed=seed + 2).sign()
    overlap = rows @ rows.T
    return SignForm(
        overlap * torch.outer(coefficients, coefficients), coefficients * (overlap @ (coefficients * signs))
    ), signs


@settings(max_examples=15)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 100))
def test_the_best_choice_is_that_of_trying_all(m: int, d: int, seed: int) -> None:
    form = SignForm((rows := normal(m, d, seed=seed)) @ rows.T, normal(m, seed=seed + 1))
    everything = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=m)), dtype=torch.float64)
    best = float(form.values(likely_signs(form, starts=256))[0])
    assert best == pytest.approx(float(form.values(everything).min()), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("m", "d"), [(20, 10), (30, 10), (40, 20)])
def test_planted_signs_of_more_rows_than_dimensions_are_found(m: int, d: int) -> None:
    for seed in range(3):
        form, signs = planted(m, d, seed)
        assert torch.equal(likely_signs(form)[0], signs)


def test_a_descent_ends_where_no_flip_gains() -> None:
    form, _ = planted(12, 6, seed=0)
    ends = form.descend(normal(50, 12, seed=9).sign())
    for index in range(12):
        flipped = ends.clone()
        flipped[:, index] *= -1
        assert bool((form.values(flipped) >= form.values(ends) - 1e-9).all())


def test_choices_are_distinct_and_the_best_comes_first() -> None:
    form, _ = planted(15, 5, seed=3)
    found = likely_signs(form)
    assert len(torch.unique(found, dim=0)) == len(found)
    values = form.values(found)
    assert bool((values.diff() >= 0).all())
