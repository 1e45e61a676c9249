import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.certificate import (
    HELD_OUT_FRACTION,
    PARTIAL_BELOW,
    RECOVERED_BELOW,
    RowSplit,
    certify,
    held_out_loss,
    split_rows,
)
from exhume.attacks.span import SpanLoss
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome

D, N = 40, 3
P = 12 * D * N


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_split_uses_every_row_once_and_leaves_the_attack_at_least_one(p: int, fraction: float) -> None:
    split = split_rows(p, fraction)
    assert split.used + split.held_out == p
    assert split.used >= 1
    assert split.held_out >= 0
    assert (split.held_out == 0) == (fraction == 0 or p == 1)
    if 1 <= fraction * p <= p - 1:
        assert abs(split.held_out - fraction * p) <= 0.5


@given(st.integers(20, 10**9))
def test_one_row_in_twenty_is_held_out_unless_told_otherwise(p: int) -> None:
    assert HELD_OUT_FRACTION == 0.05
    assert split_rows(p) == split_rows(p, 0.05)
    assert split_rows(p).held_out == pytest.approx(p / 20, abs=0.51)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, float("nan"), float("inf")])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(UsageError, match="held-out fraction") as caught:
        split_rows(100, fraction)
    assert "\n" not in str(caught.value)


def on_sphere(m: int, seed: int) -> Tensor:
    rows = torch.randn(m, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows * (D**0.5 / rows.norm(dim=1, keepdim=True))


def victim(name: str) -> tuple[Observation, Tensor, Tensor]:
    features = RidgeFeatures(DrawnRows(1, P, D), activation(name))
    samples = on_sphere(N, 0)
    coefficients = torch.tensor([[1.0], [-0.7], [0.4]], dtype=torch.float64)
    return Observation(features, coefficients.T @ features(samples), Knowledge(N)), samples, coefficients


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid"])
def test_the_truth_predicts_the_held_out_weights(name: str, scale: float) -> None:
    observation, samples, coefficients = victim(name)
    scaled = Observation(observation.features, observation.weights * scale, observation.knowledge)
    loss = held_out_loss(scaled, split_rows(P), samples, coefficients * scale)
    assert loss is not None
    assert loss < 1e-20


@pytest.mark.parametrize("seed", range(1, 6))
def test_random_candidates_do_not_predict_the_held_out_weights_however_well_they_are_fitted(seed: int) -> None:
    observation, _, _ = victim("tanh")
    split = split_rows(P)
    candidates = on_sphere(N, seed)
    seen = SpanLoss(observation.features.part(0, split.used), observation.weights[:, : split.used], torch.float64)
    fit = seen.fit(candidates)
    loss = held_out_loss(observation, split, candidates, fit.coefficients * seen.scale)
    assert loss is not None
    assert loss > 0.5


def test_the_held_out_loss_reads_the_held_out_rows_alone() -> None:
    observation, samples, coefficients = victim("relu")
    split = split_rows(P)
    weights = observation.weights.clone()
    weights[:, : split.used] = 7.0
    changed = Observation(observation.features, weights, observation.knowledge)
    assert held_out_loss(changed, split, samples, coefficients) == held_out_loss(
        observation, split, samples, coefficients
    )
    weights[:, split.used :] *= -1
    negated = held_out_loss(Observation(observation.features, weights, Knowledge(N)), split, samples, coefficients)
    assert negated == pytest.approx(4)


def test_without_held_out_rows_or_with_none_that_differs_from_zero_there_is_no_held_out_loss() -> None:
    observation, samples, coefficients = victim("relu")
    assert held_out_loss(observation, split_rows(P, 0.0), samples, coefficients) is None
    weights = observation.weights.clone()
    weights[:, split_rows(P).used :] = 0
    silent = Observation(observation.features, weights, observation.knowledge)
    assert held_out_loss(silent, split_rows(P), samples, coefficients) is None


@pytest.mark.parametrize(
    ("converged", "unseen", "outcome"),
    [
        (True, 0.0, Outcome.RECOVERED),
        (True, RECOVERED_BELOW, Outcome.RECOVERED),
        (True, RECOVERED_BELOW * 1.01, Outcome.PARTIAL),
        (True, PARTIAL_BELOW, Outcome.PARTIAL),
        (True, PARTIAL_BELOW * 1.01, Outcome.SPURIOUS),
        (True, float("nan"), Outcome.SPURIOUS),
        (False, 0.0, Outcome.PARTIAL),
        (False, PARTIAL_BELOW, Outcome.PARTIAL),
        (False, PARTIAL_BELOW * 1.01, Outcome.NOT_CONVERGED),
        (False, 3.0, Outcome.NOT_CONVERGED),
        (False, None, Outcome.NOT_CONVERGED),
    ],
)
def test_the_outcome_follows_from_the_held_out_loss(converged: bool, unseen: float | None, outcome: Outcome) -> None:
    certificate = certify(converged, unseen, RowSplit(95, 5))
    assert certificate.outcome is outcome
    assert certificate.held_out_rows == 5
    assert certificate.held_out_loss is unseen


def test_nothing_is_called_recovered_without_held_out_rows() -> None:
    assert certify(True, None, RowSplit(100, 0)).outcome is not Outcome.RECOVERED
