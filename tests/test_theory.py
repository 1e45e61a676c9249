import subprocess
import sys

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import activation
from exhume.errors import UsageError
from exhume.metrics.errors import reconstruction_error, span_residual
from exhume.metrics.matching import to_norm
from exhume.theory import ZONE_TITLES, data_threshold, explain, gauge, label_threshold

laws = settings(deadline=None)
counts = st.integers(1, 10**9)


@pytest.mark.parametrize(
    ("p", "zone"), [(1, "underfit"), (9, "underfit"), (10, "labels"), (49, "labels"), (50, "data"), (10**12, "data")]
)
def test_zones_begin_at_their_thresholds(p: int, zone: str) -> None:
    assert gauge(p, d=5, n=10).zone == zone


@laws
@given(counts, counts, counts)
def test_ratios_cross_one_where_zones_change(p: int, d: int, n: int) -> None:
    found = gauge(p, d, n)
    assert found.zone == ("data" if p >= data_threshold(d, n) else "labels" if p >= label_threshold(n) else "underfit")
    assert found.labels_ratio == p / n
    assert found.ratio == p / (d * n)
    assert found.capacity == p / d
    assert (found.capacity >= n) == (found.zone == "data")


def test_without_samples_only_the_capacity_is_known() -> None:
    found = gauge(300, 100)
    assert (found.n, found.labels_ratio, found.ratio, found.zone) == (None, None, None, "unknown")
    assert found.capacity == 3


@pytest.mark.parametrize(("p", "d", "n"), [(0, 1, 1), (1, -2, 1), (1, 1, 0)])
def test_counts_below_one_are_refused_in_one_line(p: int, d: int, n: int) -> None:
    with pytest.raises(UsageError, match=r"^expected [pdn] to be a whole number of at least 1, found (0|-2)$"):
        gauge(p, d, n)


@pytest.mark.parametrize("p", [2.5, True])
def test_what_is_not_a_count_is_refused(p: float) -> None:
    with pytest.raises((UsageError, jaxtyping.TypeCheckError)):
        gauge(p, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("p", "n", "follows", "does_not_follow"),
    [
        (5, 10, "cannot fit all labels", "does not mean safe"),
        (20, 10, "Other data sets give the same weights", "does not mean safe"),
        (80, 10, "can give the data away", "does not mean that an attack will converge"),
        (79, None, "up to 15 samples", "does not mean safe"),
    ],
)
def test_explanation_says_what_follows_and_what_does_not(
    p: int, n: int | None, follows: str, does_not_follow: str
) -> None:
    found = gauge(p, d=5, n=n)
    sentences = explain(found)
    assert found.zone in ZONE_TITLES
    assert any(follows in sentence for sentence in sentences)
    assert any(does_not_follow in sentence for sentence in sentences)
    assert any("d - 1 + k" in sentence for sentence in sentences)
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)


def test_gauge_answers_without_heavy_imports() -> None:
    code = "import sys, exhume.theory; print({'torch', 'scipy', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "set()"


def neighbour_sums(samples: Tensor, last_sign: int) -> Tensor:
    """√d (x_i + x_(i+1)) / ‖·‖ for i < n, and √d (x_n ± x_1) / ‖·‖ to close the ring."""
    following = samples.roll(-1, dims=0)
    following[-1] *= last_sign
    return to_norm(samples + following, samples.shape[1] ** 0.5)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 10])
def test_ring_of_neighbours_spans_everything_only_with_the_right_closing_sign(n: int) -> None:
    """Coefficients 1, −1, 1, … annihilate all sums; the closing row must not be annihilated too: − for even n."""
    samples = torch.eye(n, dtype=torch.float64)
    right = -1 if n % 2 == 0 else 1
    assert torch.linalg.matrix_rank(neighbour_sums(samples, right)) == n
    assert torch.linalg.matrix_rank(neighbour_sums(samples, -right)) == n - 1


@pytest.mark.parametrize("n", [6, 7])
def test_a_linear_activation_hides_the_data_from_any_number_of_weights_and_a_nonlinear_one_does_not(n: int) -> None:
    """Points far from the data explain the weights without error if φ is linear, however large p is."""
    d = 30
    p = 20 * data_threshold(d, n)
    generator = torch.Generator().manual_seed(0)
    samples = to_norm(torch.randn(n, d, generator=generator, dtype=torch.float64), d**0.5)
    v = torch.randn(p, d, generator=generator, dtype=torch.float64) / d**0.5
    alpha = torch.randn(n, generator=generator, dtype=torch.float64)
    impostors = neighbour_sums(samples, -1 if n % 2 == 0 else 1)
    assert reconstruction_error(samples, impostors) > 0.5

    residuals, losses = {}, {}
    for name in ("linear", "relu+tanh"):
        truth, found = (activation(name).value(rows @ v.T) for rows in (samples, impostors))
        theta = alpha @ truth
        fit = torch.linalg.lstsq(found.T, theta[:, None]).solution[:, 0]
        losses[name] = ((theta - fit @ found).square().sum() / theta.square().sum()).item()
        residuals[name] = span_residual([(truth, found)], p)
    assert residuals["linear"] < 1e-6
    assert losses["linear"] < 1e-20
    assert residuals["relu+tanh"] > 0.1
    assert losses["relu+tanh"] > 0.01
