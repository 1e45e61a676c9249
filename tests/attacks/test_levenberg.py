import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.levenberg import REFUSALS, DampingState, Move
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer import levenberg
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.split_step import split_move
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

D, N, P = 10, 3, 300
NORM = D**0.5


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(
    name: str, seed: int = 0, away: float = 0.3, dtype: torch.dtype = torch.float64, p: int = P
) -> tuple[SpanLoss, Tensor]:
    """A loss, and a start at about `away` of the truth."""
    features = RidgeFeatures(hold(DrawnRows(seed, p, D), dtype=dtype), activation(name))
    samples = to_norm(normal(N, D, seed=seed), NORM)
    coefficients = torch.tensor([[1.0, -0.7, 0.5]], dtype=torch.float64)
    loss = SpanLoss(features, coefficients @ features(samples.to(dtype)).double(), dtype)
    return loss, to_norm(samples + away * normal(N, D, seed=seed + 1), NORM).to(dtype)


def refined(loss: SpanLoss, start: Tensor, rule: Levenberg, iterations: int, until: float = 0.0) -> list[Fit]:
    fit = loss.fit(start)
    return [fit, *rule.refine(loss, fit, NORM, iterations, until)]


@settings(max_examples=12)
@given(
    st.integers(0, 1000),
    st.sampled_from(["relu", "tanh", "gelu", "softplus", "relu+tanh", "sigmoid"]),
    st.sampled_from([0, 5]),
    st.sampled_from([0.1, 1.0, 100.0]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_loss_never_rises_and_norms_are_kept(
    seed: int, name: str, products: int, away: float, dtype: torch.dtype
) -> None:
    loss, start = problem(name, seed, away, dtype)
    fits = refined(loss, start, Levenberg(products), 8)
    assert all(later.loss <= earlier.loss for earlier, later in itertools.pairwise(fits))
    assert fits[-1].loss < fits[0].loss
    for fit in fits:
        torch.testing.assert_close(fit.candidates.norm(dim=1), torch.full((N,), NORM, dtype=dtype))
        assert fit.loss == loss.fit(fit.candidates).loss


@pytest.mark.parametrize("products", [0, 5])
@pytest.mark.parametrize("name", ["relu", "tanh", "softplus"])
def test_reordering_the_start_reorders_the_result(name: str, products: int) -> None:
    loss, start = problem(name, away=0.5)
    plain = refined(loss, start, Levenberg(products), 6)[-1]
    for order in ((2, 0, 1), (1, 0, 2)):
        other = refined(loss, start[list(order)], Levenberg(products), 6)[-1]
        torch.testing.assert_close(other.candidates, plain.candidates[list(order)], atol=1e-6, rtol=0)


@pytest.mark.parametrize("products", [0, 5])
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_with_an_odd_activation_a_flipped_start_gives_the_flipped_result(name: str, products: int) -> None:
    loss, start = problem(name, away=0.5)
    plain = refined(loss, start, Levenberg(products), 6)[-1]
    for signs in ((-1.0, 1.0, 1.0), (1.0, -1.0, -1.0)):
        flip = torch.tensor(signs, dtype=torch.float64)[:, None]
        other = refined(loss, flip * start, Levenberg(products), 6)[-1]
        torch.testing.assert_close(other.candidates, flip * plain.candidates, atol=1e-6, rtol=0)


@pytest.mark.parametrize("products", [0, 10])
def test_it_stops_at_the_first_loss_that_is_low_enough(products: int) -> None:
    loss, start = problem("relu")
    fits = refined(loss, start, Levenberg(products), 100, until=1e-8)
    assert fits[-1].loss <= 1e-8 < fits[-2].loss
    assert len(fits) < 60
    assert list(Levenberg(products).refine(loss, fits[-1], NORM, 10, until=1e-8)) == []


@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_it_yields_once_an_iteration(iterations: int) -> None:
    loss, start = problem("tanh", away=1.0)
    assert len(refined(loss, start, Levenberg(0), iterations)) == 1 + iterations


@pytest.mark.parametrize("stall", [1, 3, 7])
def test_a_stall_is_looked_for_over_as_many_iterations_as_told(stall: int) -> None:
    loss, start = problem("tanh", away=1.0)
    # no fall is enough: the first look ends it
    assert len(refined(loss, start, Levenberg(0, stall=stall, stall_factor=0.0), 30)) == 1 + stall
    # any is enough
    assert len(refined(loss, start, Levenberg(0, stall=stall, stall_factor=float("inf")), 12)) == 13


@pytest.mark.parametrize("products", [0, 5])
def test_with_its_pace_a_refinement_goes_on_as_if_it_had_never_stopped(products: int) -> None:
    loss, start = problem("relu+tanh", away=1.0)
    whole = refined(loss, start, Levenberg(products), 10)
    for stop in (1, 4, 9):
        pace = DampingState()
        first = list(Levenberg(products).refine(loss, loss.fit(start), NORM, stop, pace=pace))
        second = list(Levenberg(products).refine(loss, first[-1], NORM, 10 - stop, pace=pace))
        assert [fit.loss for fit in first + second] == [fit.loss for fit in whole[1:]]
        assert torch.equal(second[-1].candidates, whole[-1].candidates)


def test_a_good_step_lowers_the_damping_by_at_most_3_and_never_below_the_floor() -> None:
    pace, step = DampingState(), torch.zeros(N, D)
    dampings = [pace.damping]
    for gain in (1.0, 0.9, 5.0, 1.0, 1.0, 1.0):
        pace.accepted(gain, step, floor=1e-3)
        dampings.append(pace.damping)
    assert dampings[-1] == 1e-3
    assert all(1 <= earlier / later <= 3.001 for earlier, later in itertools.pairwise(dampings))
    pace.accepted(0.01, step, floor=1e-3)
    assert pace.damping > 1e-3, "a step that gained far less than promised raises it"


def test_a_run_that_still_falls_is_not_stalled_and_one_on_a_plateau_is() -> None:
    rule = Levenberg(5, stall=4, stall_factor=0.9)
    loss, start = problem("relu", away=0.2)
    assert refined(loss, start, rule, 40, until=1e-20)[-1].loss <= 1e-20
    noise = SpanLoss(loss.features, normal(1, P, seed=5), torch.float64)
    assert len(refined(noise, start, rule, 100)) < 40


@pytest.mark.parametrize("products", [0, 5])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_steps_that_are_not_finite_are_refused_and_given_up(
    monkeypatch: pytest.MonkeyPatch, products: int, bad: float
) -> None:
    loss, start = problem("relu")

    def broken(*_: object) -> Move:
        return Move(torch.full_like(start, bad), 1.0)

    monkeypatch.setattr(levenberg, "newton_move" if products else "split_move", broken)
    fits = refined(loss, start, Levenberg(products), 50)
    assert len(fits) == 1 + REFUSALS
    assert all(fit is fits[0] for fit in fits)


def test_after_a_refused_step_the_damping_rises_by_growing_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, start = problem("relu")
    dampings: list[float] = []

    def uphill(loss: SpanLoss, model: object, damping: float, *_: object) -> Move:
        dampings.append(damping)
        return Move(torch.zeros_like(start), 1.0)

    monkeypatch.setattr(levenberg, "newton_move", uphill)
    refined(loss, start, Levenberg(5), 50)
    ratios = [later / earlier for earlier, later in itertools.pairwise(dampings)]
    assert ratios == pytest.approx([2.0**power for power in range(1, REFUSALS)])


@pytest.mark.parametrize("products", [0, 20])
@pytest.mark.parametrize("name", ["relu", "tanh", "gelu", "relu+tanh"])
def test_from_near_the_truth_it_converges_to_the_rounding_of_float64(name: str, products: int) -> None:
    loss, start = problem(name, away=0.1)
    rule = Levenberg(products, forcing=0.01, damping_floor=1e-8)
    fit = refined(loss, start, rule, 150, until=1e-26)[-1]
    assert fit.loss <= 1e-26


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_momentum_needs_fewer_iterations_near_the_solution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In theory (√q)^t instead of (2√q / (1 + q))^t with q = 1/4: half of the iterations."""
    d, n, p = 30, 6, 720
    features = RidgeFeatures(hold(DrawnRows(1, p, d), dtype=torch.float64), activation(name))
    samples = to_norm(normal(n, d, seed=1), d**0.5)
    coefficients = torch.tensor([[1.0, -0.7, 0.5, -1.2, 0.8, 0.9]], dtype=torch.float64)
    loss = SpanLoss(features, coefficients @ features(samples), torch.float64)
    start = loss.fit(to_norm(samples + 0.05 * normal(n, d, seed=2), d**0.5))

    def iterations() -> int:
        return len(list(Levenberg(0, damping_floor=1e-4).refine(loss, start, d**0.5, 150, until=1e-16)))

    pushed = iterations()
    monkeypatch.setattr(
        levenberg, "split_move", lambda loss, model, damping, velocity=None: split_move(loss, model, damping)
    )
    plain = iterations()
    assert pushed < 0.75 * plain < 0.75 * 150
