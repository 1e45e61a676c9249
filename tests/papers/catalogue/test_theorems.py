import math

import pytest
import torch

from exhume.activations import activation
from exhume.metrics.matching import to_norm
from exhume_papers.catalogue import lemma_b4, same_point, second_paper_checks, splitting, theorems
from exhume_papers.catalogue.assumed_activation import ASSUMED, assumption_2
from exhume_papers.catalogue.span_matching import CLOSE, match_span
from exhume_papers.catalogue.theory import samples_on_sphere, weights_of


def test_the_activation_meets_the_assumption_and_those_of_the_figures_do_not() -> None:
    assert assumption_2(ASSUMED).holds
    assert ASSUMED.value(torch.linspace(-100, 100, 10_001)).abs().max() < 4
    assert ASSUMED.parity == "none"
    for name, missing in (("relu", "no_square"), ("tanh", "both_parities"), ("relu+tanh", "no_constant")):
        assert not getattr(assumption_2(activation(name)), missing)


@pytest.mark.parametrize("phi", [ASSUMED, activation("relu")])
def test_the_share_that_is_left_is_that_of_least_squares(phi: object) -> None:
    samples, rows = samples_on_sphere(3, 5, 0), weights_of(40, 5, 0)
    start = samples_on_sphere(2, 5, 1)
    target, features = phi.value(samples @ rows.T), phi.value(start @ rows.T)  # type: ignore[attr-defined]
    left = target - (target @ torch.linalg.pinv(features)) @ features
    naive = float(left.square().sum() / target.square().sum())
    assert match_span(target, rows, phi, start, iterations=0).share == pytest.approx(naive)  # type: ignore[arg-type]


def test_spans_are_matched_by_the_data_alone_above_the_count_and_by_others_below_it() -> None:
    """n = 2 and 3. With few rows, or a linear activation, the search finds candidates that are far: it can fail."""
    for n, d, p in ((2, 6, 48), (3, 6, 72)):
        found = theorems._try_spans(n, d, p, ASSUMED, trials=3, starts=6)
        assert found.exact >= 3
        assert (found.far, found.missing) == (0, 0)
        assert found.farthest < 1e-3
    few = theorems._try_spans(2, 6, 5, ASSUMED, trials=2, starts=6)
    assert few.far > 0
    linear = theorems._try_spans(2, 6, 48, activation("linear"), trials=1, starts=3)
    assert linear.far == linear.exact == 3


def test_signs_are_lost_with_even_and_odd_activations_only() -> None:
    left = {row["activation"]: row["least_unexplained"] for row in theorems.signs_turned("quick").rows}
    assert left["tanh"] < 1e-20
    assert left["cos"] < 1e-20
    assert min(left["relu"], left["relu+tanh"], left["tanh+cos"]) > 0.05


def test_weights_alone_have_other_exact_solutions_at_the_threshold() -> None:
    samples, rows = samples_on_sphere(2, 3, 0), weights_of(6, 3, 0)
    features = ASSUMED.value(samples @ rows.T)
    weights = features[:1] - 2 * features[1:]
    stream = torch.Generator().manual_seed(0)
    starts = [torch.randn(2, 3, generator=stream, dtype=torch.float64) for _ in range(20)]
    found = [match_span(weights, rows, ASSUMED, start) for start in starts]
    wrong = [one for one in found if theorems._wrong(one, samples)]
    assert wrong, "p = dn is as many equations as unknowns, and those have several solutions"
    other = ASSUMED.value(wrong[0].candidates @ rows.T)
    left = weights - (weights @ torch.linalg.pinv(other)) @ other
    assert float(left.norm() / weights.norm()) < 1e-5
    assert wrong[0].farthest(torch.cat([samples, -samples])) > CLOSE


def test_the_lemma_holds_for_the_sphere_and_fails_for_data_around_one_direction() -> None:
    small, large = samples_on_sphere(30, 30, 0), samples_on_sphere(200, 200, 0)
    found = lemma_b4.largest_excess(large, 2, 60)
    assert found < lemma_b4.largest_excess(small, 2, 60)
    assert found < 0.3
    together = to_norm(large + large[:1], math.sqrt(200))  # not sub-Gaussian with a norm of O(1)
    assert lemma_b4.largest_excess(together, 2, 60) > 2


def test_the_excess_is_zero_for_sums_of_orthogonal_samples() -> None:
    samples = math.sqrt(6) * torch.eye(6, dtype=torch.float64)
    assert lemma_b4.largest_excess(samples, 3, 1) < 1e-6


@pytest.mark.parametrize("size", [0.3, 10.0])
def test_a_split_sample_is_invisible_to_kkt_equations_and_visible_to_known_features(size: float) -> None:
    assert splitting.kkt_left(3, 12, size, 0) < 1e-20
    assert splitting.features_left(3, 12, size, 0) > 1e-4
    assert splitting.features_left(3, 12, 1e-9, 0) < 1e-12, "without a split nothing is left"


def test_a_split_along_the_span_is_visible_to_kkt_equations_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "_across", lambda samples, size, stream: size * samples[1:2])
    assert splitting.kkt_left(3, 12, 0.5, 0) > 1e-3


def test_a_smaller_step_ends_nearly_where_a_large_one_does() -> None:
    apart = same_point._apart(20, 4, 10, 0)
    assert 1e-6 < apart < 0.01


def test_no_failure_refutes_a_rate_only_with_enough_trials() -> None:
    assert theorems.rate_refuted(58) > 0.05 > theorems.rate_refuted(59)


@pytest.mark.slow
def test_the_checks_of_the_second_paper_say_what_they_found() -> None:
    assert "0 of 20 trials failed at width 2,000" in second_paper_checks.width_at_risk("quick").finding
    assert "p^-0." in second_paper_checks.subspace_angles("quick").finding
