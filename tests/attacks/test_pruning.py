from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.pruning import COPY_COSINE, cross_validated, without_copies
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

D, M, P = 8, 5, 250


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss_of(name: str = "relu", k: int = 1, affine: bool = False, p: int = P) -> SpanLoss:
    features = RidgeFeatures(hold(DrawnRows(4, p, D), dtype=torch.float64), activation(name))
    return SpanLoss(features, normal(k, p, seed=1), torch.float64).part(p, affine)


def candidates_of(m: int = M, seed: int = 2) -> Tensor:
    return to_norm(normal(m, D, seed=seed), D**0.5)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
def test_a_removal_costs_what_a_refit_without_the_candidate_loses(name: str, k: int, affine: bool) -> None:
    loss, candidates = loss_of(name, k, affine), candidates_of()
    fit = loss.fit(candidates)
    refits = [loss.fit(torch.cat([candidates[:i], candidates[i + 1 :]])).loss - fit.loss for i in range(M)]
    torch.testing.assert_close(removal_costs(fit, loss), torch.tensor(refits).double(), rtol=1e-6, atol=1e-10)


def test_a_candidate_without_a_coefficient_costs_nothing() -> None:
    loss = loss_of()
    samples = candidates_of(3)
    exact = SpanLoss(loss.features, normal(1, 3, seed=3) @ loss.features(samples), torch.float64)
    costs = removal_costs(exact.fit(torch.cat([samples, candidates_of(2, seed=9)])), exact)
    assert costs[3:].max() < 1e-20
    assert costs[:3].min() > 1e-3


def with_coefficients(candidates: Tensor, sizes: list[float]) -> Fit:
    empty = torch.zeros(len(candidates), P, dtype=torch.float64)
    square = torch.eye(len(candidates), dtype=torch.float64)
    coefficients = torch.tensor(sizes, dtype=torch.float64)[:, None]
    return Fit(candidates, empty, square, coefficients, empty[:1], 0.0, empty, square)


def test_of_copies_up_to_sign_the_strongest_stays() -> None:
    base = candidates_of(3)
    near = to_norm(base[:1] + 0.01 * normal(1, D, seed=5), D**0.5)
    candidates = torch.cat([base, -base[:1], near, 3 * base[1:2]])
    fit = with_coefficients(candidates, [1.0, 1.0, 0.1, -2.0, 0.5, 0.7])
    assert without_copies(fit.candidates, fit.coefficients).tolist() == [False, True, True, True, False, False]
    weaker = with_coefficients(candidates, [1.0, 1.0, 0.1, 0.2, -5.0, 7.0])
    assert without_copies(weaker.candidates, weaker.coefficients).tolist() == [False, False, True, False, True, True]


@pytest.mark.parametrize(("angle", "kept"), [(0.0, 1), (0.04, 1), (0.05, 2), (1.5, 2)])
def test_candidates_are_copies_within_the_cosine(angle: float, kept: int) -> None:
    assert COPY_COSINE == 0.999, "the angle at which candidates are told apart is 0.0447"
    turned = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    turned[1] = torch.tensor([angle, angle]).cos() * torch.tensor([1.0, 0.0])
    turned[1, 1] = torch.tensor(angle).sin()
    assert int(without_copies(turned, torch.ones(2, 1)).sum()) == kept


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_one_of_each_group_stays_and_it_has_the_largest_coefficient(sizes: list[float], groups: list[int]) -> None:
    signs = torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)[:, None]
    coefficients = torch.tensor(sizes, dtype=torch.float64)[:, None]
    kept = without_copies(signs * candidates_of(3)[groups], coefficients)
    for group in set(groups):
        members = [index for index in range(6) if groups[index] == group]
        staying = [index for index in members if kept[index]]
        assert len(staying) == 1
        assert abs(sizes[staying[0]]) == max(abs(sizes[index]) for index in members)


def test_the_cross_validated_loss_is_above_the_loss_and_grows_with_candidates_and_falls_with_rows() -> None:
    fit = loss_of().fit(candidates_of())
    scores = [cross_validated(loss_of(p=p), fit) for p in (60, 100, 250, 1000, 100_000)]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == pytest.approx(fit.loss, rel=2e-3)
    assert scores[-1] > fit.loss
    by_number = [
        cross_validated(loss_of(), replace(with_coefficients(candidates_of(m), [1.0] * m), loss=0.5))
        for m in range(1, 40)
    ]
    assert by_number == sorted(by_number)
    assert all(0 < score < float("inf") for score in by_number), "also where there are more numbers than equations"
