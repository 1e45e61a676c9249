import time
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.defences.surgeon import operate
from exhume.errors import ExhumeError


def draw(seed: int, n: int, p: int, k: int = 1) -> tuple[Tensor, Tensor]:
    """Features of n samples, none of them dead (those would be equally cheap), and min-norm weights of k outputs."""
    stream = torch.Generator().manual_seed(seed)
    features = torch.nn.functional.leaky_relu(torch.randn(n, p, generator=stream, dtype=torch.float64), 0.1)
    labels = torch.randn(n, k, generator=stream, dtype=torch.float64)
    return features, (torch.linalg.pinv(features) @ labels).T


def dense_twin(
    features: Tensor, weights: Tensor, remove: int, hessian_inverse: Callable[[Tensor], Tensor]
) -> tuple[Tensor, list[int]]:
    """The textbook's steps, one weight at a time, with the inverse of the Hessian made anew for each."""
    kept, weights = list(range(features.shape[1])), weights.clone()
    for _ in range(remove):
        inverse = hessian_inverse(features[:, kept])
        diagonal = inverse.diagonal()
        q = int((weights.square().sum(dim=0) / diagonal).argmin())
        weights = weights - torch.outer(weights[:, q] / diagonal[q], inverse[q])
        left = [position for position in range(len(kept)) if position != q]
        weights, kept = weights[:, left], [kept[position] for position in left]
    return weights, kept


def null_projector(features: Tensor) -> Tensor:
    return torch.eye(features.shape[1], dtype=torch.float64) - torch.linalg.pinv(features) @ features


def damped_inverse(features: Tensor, damping: float) -> Tensor:
    return torch.linalg.inv(features.T @ features + damping * torch.eye(features.shape[1], dtype=torch.float64))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 7),
    spare=st.integers(1, 60),
    k=st.integers(1, 3),
    outside=st.sampled_from([0.0, 0.1]),
)
def test_the_fast_steps_are_the_dense_ones(seed: int, n: int, spare: int, k: int, outside: float) -> None:
    features, weights = draw(seed, n, n + spare, k)
    weights = weights + outside * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)).double()
    done = operate(features, weights, spare // 2)
    expected, kept = dense_twin(features, weights, spare // 2, null_projector)
    assert done.kept.tolist() == kept
    torch.testing.assert_close(done.weights, expected, atol=1e-7, rtol=1e-7)


def test_a_pool_gives_the_same_order_as_a_look_at_every_weight() -> None:
    features, weights = draw(1, 3, 400)  # the pool holds 50 of them
    done = operate(features, weights, 390)
    expected, kept = dense_twin(features, weights, 390, null_projector)
    assert done.kept.tolist() == kept
    torch.testing.assert_close(done.weights, expected, atol=1e-9, rtol=1e-9)


def test_the_damped_hessian_has_this_limit() -> None:
    features, weights = draw(2, 4, 25)
    done = operate(features, weights, 12)
    distances = []
    for damping in (1e-2, 1e-3, 1e-4):
        expected, kept = dense_twin(features, weights, 12, partial(damped_inverse, damping=damping))
        assert done.kept.tolist() == kept
        distances.append(float((done.weights - expected).norm()))
    assert distances[1] < 0.2 * distances[0]  # of first order in the damping
    assert distances[2] < 0.2 * distances[1]
    assert distances[2] < 1e-4


@pytest.mark.parametrize("remove", [10, 23, 28])
def test_a_ridge_keeps_its_own_hessian(remove: int) -> None:
    features, _ = draw(3, 5, 30)
    labels, damping = torch.linspace(-1, 1, 5).double(), 2.0
    weights = (features.T @ torch.linalg.solve(features @ features.T + damping * torch.eye(5).double(), labels))[None]
    done = operate(features, weights, remove, damping)
    expected, kept = dense_twin(features, weights, remove, partial(damped_inverse, damping=damping))
    assert done.kept.tolist() == kept
    torch.testing.assert_close(done.weights, expected, atol=1e-10, rtol=1e-8)
    left = features[:, done.kept]
    refitted = left.T @ torch.linalg.solve(left @ left.T + damping * torch.eye(5).double(), labels)
    torch.testing.assert_close(done.weights[0], refitted, atol=1e-10, rtol=1e-8)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 0.9))
def test_survivors_keep_the_fit_and_are_combinations_of_the_surviving_features(seed: int, share: float) -> None:
    features, weights = draw(seed, 6, 200, 2)
    done = operate(features, weights, int(share * 200))
    left = features[:, done.kept]
    torch.testing.assert_close(left @ done.weights.T, features @ weights.T, atol=1e-9, rtol=1e-9)
    coefficients = torch.linalg.lstsq(left.T, done.weights.T).solution
    torch.testing.assert_close(left.T @ coefficients, done.weights.T, atol=1e-9, rtol=1e-9)
    # which makes them the min-norm fit on the features that were kept
    refitted = torch.linalg.pinv(left) @ (features @ weights.T)
    torch.testing.assert_close(done.weights.T, refitted, atol=1e-9, rtol=1e-9)


def test_with_fewer_weights_than_samples_each_one_costs_some_fit_and_the_rest_is_least_squares() -> None:
    features, weights = draw(4, 8, 40)
    labels = (features @ weights.T)[:, 0]
    losses = []
    for left in (9, 8, 7, 5, 2, 1):
        done = operate(features, weights, 40 - left)
        chosen = features[:, done.kept]
        assert chosen.shape[1] == left
        torch.testing.assert_close(done.weights[0], torch.linalg.lstsq(chosen, labels).solution, atol=1e-6, rtol=1e-6)
        losses.append(float((chosen @ done.weights[0] - labels).square().sum()))
    assert max(losses[:2]) < 1e-12
    assert 1e-6 < losses[2] < losses[3] < losses[4] < losses[5]


def test_features_that_are_dead_go_first_and_one_that_is_needed_stays() -> None:
    features, weights = draw(5, 3, 50)
    features[:, 7] = 0
    features[2] = 0
    features[2, 11] = 0.01  # the only weight that the third sample sees
    labels = torch.tensor([1.0, 1.0, 1e-4]).double()
    weights = (torch.linalg.pinv(features) @ labels)[None]
    assert 7 not in operate(features, weights, 1).kept.tolist()
    assert abs(float(weights[0, 11])) < float(weights.abs().median())
    assert 11 in operate(features, weights, 45).kept.tolist()


def test_features_of_zeros_can_all_go_but_one() -> None:
    done = operate(torch.zeros(2, 6), torch.tensor([[0.0, 3.0, 1.0, 2.0, 0.0, 0.0]]), 5)
    assert (done.kept.tolist(), done.weights.tolist()) == ([1], [[3.0]])


def test_samples_that_occur_twice_do_not_matter() -> None:
    features, weights = draw(6, 4, 40)
    twice = torch.cat([features, features])
    once, again = (operate(rows, weights, 30) for rows in (features, twice))
    assert torch.equal(once.kept, again.kept)
    torch.testing.assert_close(once.weights, again.weights, atol=1e-9, rtol=1e-9)


def test_nothing_removed_is_nothing_changed_and_types_are_kept() -> None:
    features, weights = draw(7, 4, 40)
    done = operate(features.float(), weights.float(), 0)
    assert done.weights.dtype == torch.float32
    torch.testing.assert_close(done.weights, weights.float())
    assert done.kept.tolist() == list(range(40))


def test_half_of_6000_weights_are_removed_within_seconds() -> None:
    features, weights = draw(8, 20, 6000)
    began = time.process_time()  # a busy machine is no fault of ours
    operate(features, weights, 3000)
    assert time.process_time() - began < 5


def test_requests_that_make_no_sense_are_refused() -> None:
    features, weights = draw(9, 2, 5)
    for remove in (-1, 5):
        with pytest.raises(ExhumeError, match="to remove between 0 and 4 of 5"):
            operate(features, weights, remove)
    with pytest.raises(ExhumeError, match="finite features"):
        operate(features * float("inf"), weights, 1)
