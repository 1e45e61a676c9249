import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.certificate import (
    HELD_OUT_FRACTION,
    MOST_HELD_OUT,
    RowSplit,
    Unexplained,
    rounding_noise,
    split_rows,
)
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.certificate import certify, loss_on
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.linearised import Linearised
from exhume.attacks.single_layer.span import SpanLoss
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Certificate, Outcome

D, N = 40, 3
P = 12 * D * N
SPLIT = split_rows(P)


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_split_uses_every_row_once_and_leaves_the_attack_at_least_one(p: int, fraction: float) -> None:
    split = split_rows(p, fraction)
    kept = split.steering + split.held_out
    assert split.used + kept == p
    assert split.used >= 1
    assert 0 <= split.held_out - split.steering <= 1, "halves, and the odd row is for the verdict"
    assert (kept == 0) == (fraction == 0 or p == 1)
    assert split.held_out <= MOST_HELD_OUT
    if 1 <= fraction * p <= min(p - 1, 2 * MOST_HELD_OUT):
        assert abs(kept - fraction * p) <= 0.5


@given(st.integers(20, 600_000))
def test_one_row_in_twenty_is_held_out_unless_told_otherwise(p: int) -> None:
    assert HELD_OUT_FRACTION == 0.05
    assert split_rows(p) == split_rows(p, 0.05)
    assert p - split_rows(p).used == pytest.approx(p / 20, abs=0.51)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, float("nan"), float("inf")])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(UsageError, match="held-out fraction") as caught:
        split_rows(100, fraction)
    assert "\n" not in str(caught.value)


def on_sphere(m: int, seed: int) -> Tensor:
    rows = torch.randn(m, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return to_norm(rows, D**0.5)


def victim(name: str) -> tuple[Observation, Tensor, Tensor]:
    features = RidgeFeatures(DrawnRows(1, P, D), activation(name))
    samples = on_sphere(N, 0)
    coefficients = torch.tensor([[1.0], [-0.7], [0.4]], dtype=torch.float64)
    return Observation(features, coefficients.T @ features(samples), Knowledge(N)), samples, coefficients


def seen_loss(observation: Observation, used: int = SPLIT.used) -> SpanLoss:
    return SpanLoss(observation.ridge.part(0, used), observation.weights[:, :used], torch.float64)


def unseen(observation: Observation, candidates: Tensor, coefficients: Tensor) -> float | None:
    return loss_on(observation, SPLIT.used, P - SPLIT.used, candidates, coefficients)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid"])
def test_the_truth_predicts_the_held_out_weights(name: str, scale: float) -> None:
    observation, samples, coefficients = victim(name)
    scaled = Observation(observation.ridge, observation.weights * scale, observation.knowledge)
    loss = unseen(scaled, samples, coefficients * scale)
    assert loss is not None
    assert loss < 1e-20


@pytest.mark.parametrize("seed", range(1, 6))
def test_random_candidates_do_not_predict_the_held_out_weights_however_well_they_are_fitted(seed: int) -> None:
    observation, _, _ = victim("tanh")
    candidates, seen = on_sphere(N, seed), seen_loss(observation)
    loss = unseen(observation, candidates, seen.fit(candidates).coefficients * seen.scale)
    assert loss is not None
    assert loss > 0.5


def test_the_loss_on_some_rows_reads_these_rows_alone() -> None:
    observation, samples, coefficients = victim("relu")
    weights = observation.weights.clone()
    weights[:, : SPLIT.used] = 7.0
    weights[:, SPLIT.used + 10 :] = 7.0
    changed = Observation(observation.ridge, weights, observation.knowledge)
    before = loss_on(observation, SPLIT.used, 10, samples, coefficients)
    assert loss_on(changed, SPLIT.used, 10, samples, coefficients) == before
    weights[:, SPLIT.used : SPLIT.used + 10] *= -1
    negated = loss_on(Observation(observation.ridge, weights, Knowledge(N)), SPLIT.used, 10, samples, coefficients)
    assert negated == pytest.approx(4)


def test_without_rows_or_with_none_that_differs_from_zero_there_is_no_loss() -> None:
    observation, samples, coefficients = victim("relu")
    assert loss_on(observation, SPLIT.used, 0, samples, coefficients) is None
    weights = observation.weights.clone()
    weights[:, SPLIT.used :] = 0
    silent = Observation(observation.ridge, weights, observation.knowledge)
    assert unseen(silent, samples, coefficients) is None


@pytest.mark.parametrize("noise", [1e-4, 1e-2])
@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
def test_the_expected_error_is_the_true_one_under_noise_within_a_factor_2(name: str, noise: float) -> None:
    observation, samples, _ = victim(name)
    size = noise * float(observation.weights.square().mean().sqrt())
    stream = torch.Generator().manual_seed(4)
    noisy = observation.weights + size * torch.randn(1, P, generator=stream, dtype=torch.float64)
    loss = seen_loss(Observation(observation.ridge, noisy, Knowledge(N)))
    fit = loss.fit(samples)
    for refined in Levenberg(20, forcing=0.01).refine(loss, fit, D**0.5, 8):
        fit = refined
    missed = unseen(Observation(observation.ridge, noisy, Knowledge(N)), fit.candidates, fit.coefficients * loss.scale)
    assert missed is not None
    assert missed == pytest.approx(noise**2, rel=0.5)
    true_errors = (fit.candidates - samples).norm(dim=1) / math.sqrt(D)
    at = Linearised.at(loss, fit)
    assert at.left_out == pytest.approx(noise**2, rel=0.2)
    expected = (at.left_out * at.variances() / D).sqrt()
    assert 0.5 < float((expected / true_errors).log().mean().exp()) < 2
    assert expected.argsort().tolist() == [0, 1, 2], "the smaller its coefficient, the less is known of a sample"


def certified(candidates: Tensor, missed: float | None, weights: Tensor | None = None) -> Certificate:
    observation, _, _ = victim("relu")
    loss = seen_loss(observation)
    published = observation.weights if weights is None else weights
    return certify(loss, loss.fit(candidates), lambda *_: missed, SPLIT, published)


def test_of_two_copies_neither_is_trusted_and_the_others_are() -> None:
    _, samples, _ = victim("relu")
    for off in (0.0, 1e-9, 1e-5):
        copy = to_norm(samples[:1] + off * on_sphere(1, 9), D**0.5)
        confidence = certified(torch.cat([samples, copy]), 1e-8).confidence
        assert max(confidence[0], confidence[3]) < 0.5, off
        assert min(confidence[1:3]) > 0.9


def test_two_that_share_a_sample_are_not_trusted_though_a_row_at_the_kink_of_one_tells_them_apart() -> None:
    """x = (y + z) / 2 with y and z on the same side of every row, but for one at whose kink y came to rest."""
    observation, samples, _ = victim("relu")
    way = on_sphere(1, 9)
    before, along = observation.ridge.products(samples[:1])[0], observation.ridge.products(way)[0]
    nearest = int((before.abs() / along.abs()).argmin())
    step = -before[nearest] / along[nearest] * (1 + 1e-9)
    pair = torch.cat([samples[:1] + step * way, samples[:1] - step * way])
    sides = observation.ridge.products(pair) > 0
    assert (sides[0] != sides[1]).nonzero()[:, 0].tolist() == [nearest]
    confidence = certified(torch.cat([pair, samples[1:]]), 1e-14).confidence
    assert max(confidence[:2]) < 0.5


def test_candidates_that_would_still_move_are_not_trusted() -> None:
    """Left by an attack on its way: what is unexplained is small, and the Newton step is not."""
    _, samples, _ = victim("relu")
    off = to_norm(samples + 0.05 * on_sphere(N, 9), D**0.5)
    settled, moving = certified(samples, 1e-6).confidence, certified(off, 1e-6).confidence
    assert min(settled) > 0.9
    assert max(moving) < 0.5


@pytest.mark.parametrize(("name", "scale"), [("linear", 1.0), ("tanh", 1e-3), ("gelu", 0.003), ("softplus", 0.01)])
def test_weights_that_show_only_sums_over_samples_certify_nobody(name: str, scale: float) -> None:
    """Where φ looks like a parabola, other vectors with the same first and second moments explain the weights."""
    rows = HeldRows(scale * DrawnRows(1, P, D).block(0, P).double())
    features = RidgeFeatures(rows, activation(name))
    samples = on_sphere(N, 0)
    weights = torch.tensor([[1.0, -0.7, 0.4]], dtype=torch.float64) @ features(samples)
    observation = Observation(features, weights, Knowledge(N))
    loss = seen_loss(observation)
    certificate = certify(loss, loss.fit(samples), lambda *_: 1e-14, SPLIT, weights)
    assert max(certificate.confidence) < 0.5
    assert certificate.outcome is not Outcome.RECOVERED


def test_a_candidate_without_a_coefficient_is_not_trusted() -> None:
    _, samples, _ = victim("relu")
    certificate = certified(torch.cat([samples, on_sphere(1, 9)]), 1e-12)
    assert certificate.confidence[3] < 0.1
    assert min(certificate.confidence[:3]) > 0.9
    assert certificate.outcome is Outcome.PARTIAL


@pytest.mark.parametrize(
    ("missed", "outcome", "trusted"),
    [
        (0.0, Outcome.RECOVERED, True),
        (1e-14, Outcome.RECOVERED, True),
        (1e-11, Outcome.RECOVERED, True),
        (1.1e-11, Outcome.PARTIAL, True),
        (1e-4, Outcome.PARTIAL, True),
        (0.2, Outcome.SPURIOUS, False),
        (3.0, Outcome.SPURIOUS, False),
        (None, Outcome.NOT_CONVERGED, False),
    ],
)
def test_the_outcome_of_a_fit_follows_from_the_held_out_loss(
    missed: float | None, outcome: Outcome, trusted: bool
) -> None:
    certificate = certified(victim("relu")[1], missed)
    assert certificate.outcome is outcome
    assert certificate.held_out_rows == SPLIT.held_out
    assert certificate.held_out_loss == missed
    assert [value >= 0.5 for value in certificate.confidence] == [trusted] * N


@pytest.mark.parametrize(
    ("missed", "outcome"), [(0.6, Outcome.NOT_CONVERGED), (1.0, Outcome.NOT_CONVERGED), (100.0, Outcome.SPURIOUS)]
)
def test_candidates_that_do_not_even_fit_have_not_converged(missed: float, outcome: Outcome) -> None:
    candidates = on_sphere(N, 17)
    assert 0.25 < seen_loss(victim("relu")[0]).fit(candidates).loss < 1
    assert certified(candidates, missed).outcome is outcome


@given(st.integers(1, 10**6), st.floats(0, 1.5), st.floats(1e-12, 1), st.floats(1e-12, 1))
def test_the_noise_is_never_taken_for_less_than_either_loss_shows(h: int, q: float, loss: float, missed: float) -> None:
    left = Unexplained(loss, missed, h, q)
    assert left.noise >= 0.99 * max(loss, missed)
    assert Unexplained(loss, missed, 2 * h, q).noise <= left.noise * (1 + 1e-9), "more unseen weights, less caution"


def test_a_few_unseen_weights_that_are_predicted_well_by_luck_make_nothing_trusted() -> None:
    """Three weights of a hundred, missed by far less than the fitted ones."""
    assert Unexplained(2.6e-3, 2.1e-4, 3, 0.4).noise > 5e-3
    assert Unexplained(1e-9, 1e-6, 10_000, 0.1).noise == pytest.approx(1e-6 / 0.9, rel=0.05)


@pytest.mark.parametrize(
    ("noise", "dropped", "outcome"),
    [(1e-3, 0, Outcome.RECOVERED), (0.05, 0, Outcome.PARTIAL), (1e-3, 1, Outcome.NOT_CONVERGED)],
)
def test_with_drift_recovered_means_that_no_sample_of_the_least_size_found_is_missing(
    noise: float, dropped: int, outcome: Outcome
) -> None:
    observation, samples, _ = victim("relu")
    size = noise * float(observation.weights.square().mean().sqrt())
    drift = size * torch.randn(1, P, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    noisy = Observation(observation.ridge, observation.weights + drift, Knowledge(N))
    loss = seen_loss(noisy)
    fit = loss.fit(samples[dropped:])
    missed = unseen(noisy, fit.candidates, fit.coefficients * loss.scale)
    assert certify(loss, fit, lambda *_: missed, SPLIT, noisy.weights, drifted=True).outcome is outcome


@pytest.mark.parametrize(("drifted", "outcome"), [(False, Outcome.PARTIAL), (True, Outcome.RECOVERED)])
def test_where_features_stood_still_a_sample_with_a_tiny_coefficient_is_not_taken_for_noise(
    drifted: bool, outcome: Outcome
) -> None:
    """What it leaves is a hundred-thousandth of the weights: the features of a trained layer would leave more."""
    features, samples, _ = victim("relu")
    another = on_sphere(1, 17)
    weights = features.weights + 0.003 * features.ridge(another)
    observation = Observation(features.ridge, weights, Knowledge())
    loss = seen_loss(observation)
    fit = loss.fit(samples)
    missed = unseen(observation, samples, fit.coefficients * loss.scale)
    assert missed is not None
    assert 1e-8 < missed < 1e-4
    certificate = certify(loss, fit, lambda *_: missed, SPLIT, weights, drifted=drifted)
    assert certificate.outcome is outcome
    assert min(certificate.confidence) > 0.5


def test_nothing_is_called_recovered_without_held_out_rows() -> None:
    observation, samples, _ = victim("relu")
    loss = seen_loss(observation, P)
    certificate = certify(loss, loss.fit(samples), lambda *_: None, RowSplit(P, 0, 0), observation.weights)
    assert certificate.outcome is Outcome.NOT_CONVERGED
    assert certificate.confidence == (0.0,) * N


def gaussian_weights() -> Tensor:
    return torch.randn(1, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_the_rounding_of_a_short_format_is_seen_in_the_weights(kind: torch.dtype) -> None:
    exact = gaussian_weights()
    rounded = exact.to(kind).double()
    true = float((rounded - exact).square().mean() / exact.square().mean())
    assert true / 4 < rounding_noise(rounded.float()) < 4 * true


def test_the_rounding_of_an_integer_grid_is_seen_in_the_weights() -> None:
    exact = gaussian_weights()
    step = float(exact.abs().max()) / 127
    rounded = (exact / step).round() * step
    true = float((rounded - exact).square().mean() / exact.square().mean())
    assert rounding_noise(rounded) == pytest.approx(true, rel=0.2)


def test_the_rounding_of_one_integer_grid_for_each_output_is_seen_in_the_weights() -> None:
    scales = torch.tensor([[1.0], [0.01], [7.3]], dtype=torch.float64)
    exact = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * scales
    steps = exact.abs().amax(dim=1, keepdim=True) / 127
    rounded = (exact / steps).round() * steps
    assert len(torch.unique(rounded)) > 256, "no grid is seen in all outputs at once"
    true = float((rounded - exact).square().mean() / exact.square().mean())
    assert rounding_noise(rounded) == pytest.approx(true, rel=0.2)
    alone = [rounding_noise(row[None]) for row in rounded]
    shares = exact.square().sum(dim=1) / exact.square().sum()
    assert rounding_noise(rounded) == pytest.approx(float(torch.tensor(alone).double() @ shares), rel=0.01)
    with_zeros = torch.cat([rounded, torch.zeros(1, 5000)])
    assert rounding_noise(with_zeros) == pytest.approx(rounding_noise(rounded), rel=1e-9)
    assert rounding_noise(torch.cat([rounded, exact[:1]])) == 0, "one output without a grid"


def test_a_grid_of_all_outputs_is_seen_where_each_has_few_weights() -> None:
    grid = torch.randint(-7, 8, (4, 100), generator=torch.Generator().manual_seed(0)) * 0.3
    expected = 0.3**2 / 12 / float(grid.double().square().mean())
    assert rounding_noise(grid) == pytest.approx(expected, rel=1e-4)
    assert rounding_noise(grid[:1]) == 0, "100 numbers are too few"


def test_the_rounding_of_one_output_is_the_step_squared_over_twelve_to_the_last_bit() -> None:
    grid = (gaussian_weights() * 20).round() * 0.37
    step = float(torch.unique(grid).diff().min())
    assert rounding_noise(grid) == step**2 / 12 / float(grid.square().mean())


def test_single_and_double_precision_show_no_rounding() -> None:
    assert rounding_noise(gaussian_weights()) == rounding_noise(gaussian_weights().float()) == 0


def test_what_rounding_explains_does_not_stand_against_a_recovery() -> None:
    observation, samples, _ = victim("relu")
    half = observation.weights.to(torch.bfloat16)
    noise = rounding_noise(half)
    assert certified(samples, 2 * noise, half).outcome is Outcome.RECOVERED
    assert certified(samples, 10 * noise, half).outcome is Outcome.PARTIAL, "room for a sample"
    assert certified(samples, 10 * noise).outcome is Outcome.PARTIAL
