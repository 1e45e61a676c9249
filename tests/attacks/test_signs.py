import itertools

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.signs import repair_signs
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

D, P = 6, 600
LINEAR_PLUS_EVEN = ["relu", "gelu", "softplus"]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def victim(
    name: str, n: int, k: int = 1, noise: float = 0.0, dtype: torch.dtype = torch.float64, bias: bool = False
) -> tuple[SpanLoss, Tensor]:
    shift = 0.5 * normal(P, seed=9) if bias else None
    features = RidgeFeatures(hold(DrawnRows(4, P, D), dtype=dtype), activation(name), shift)
    samples = to_norm(normal(n, D, seed=2), D**0.5).to(dtype)
    coefficients = normal(k, n, seed=3)
    coefficients = coefficients + 0.4 * coefficients.sign()
    loss = SpanLoss(features, coefficients @ features(samples).double(), dtype)
    return loss, to_norm(samples + noise * normal(n, D, seed=5).to(dtype), D**0.5)


def patterns(n: int) -> list[Tensor]:
    return [torch.tensor(signs)[:, None] for signs in itertools.product((1.0, -1.0), repeat=n)]


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("n", [1, 3, 5, D])
@pytest.mark.parametrize("name", LINEAR_PLUS_EVEN)
def test_every_pattern_of_signs_is_repaired_up_to_d_candidates(name: str, n: int, k: int) -> None:
    loss, samples = victim(name, n, k)
    for signs in patterns(n):
        assert torch.equal(repair_signs(loss, signs * samples), samples)


@pytest.mark.parametrize("name", LINEAR_PLUS_EVEN)
def test_candidates_that_are_a_little_off_are_repaired_in_float32(name: str) -> None:
    loss, candidates = victim(name, 4, noise=0.02, dtype=torch.float32)
    for signs in patterns(4):
        assert torch.equal(repair_signs(loss, signs * candidates), candidates)


@pytest.mark.parametrize("name", LINEAR_PLUS_EVEN)
def test_above_d_candidates_flips_lower_the_loss_and_leave_the_truth_alone(name: str) -> None:
    n = D + 2
    loss, samples = victim(name, n)
    assert torch.equal(repair_signs(loss, samples), samples)
    exact = 0
    for signs in patterns(n)[::5]:
        repaired = repair_signs(loss, signs * samples)
        torch.testing.assert_close(repaired.abs(), samples.abs())
        before, after = loss.fit(signs * samples).loss, loss.fit(repaired).loss
        assert after <= before + 1e-9
        exact += after < 1e-9
    assert exact > 10, "far more than the one pattern in 51 that is right by itself"


@pytest.mark.parametrize("n", [2, 5, 9])
def test_for_sigmoid_the_constant_makes_the_fit_exact(n: int) -> None:
    loss, samples = victim("sigmoid", n)
    for signs in patterns(n)[:: max(1, 2 ** (n - 4))]:
        repaired = repair_signs(loss, signs * samples)
        assert torch.equal(repaired.abs(), samples.abs())
        assert loss.fit(repaired).loss < 1e-16


@pytest.mark.parametrize(("name", "bias"), [("tanh", False), ("erf", False), ("relu+tanh", False), ("relu", True)])
def test_where_weights_say_nothing_or_all_by_themselves_no_sign_is_touched_and_no_pass_is_made(
    name: str, bias: bool
) -> None:
    loss, samples = victim(name, 4, bias=bias)
    for signs in patterns(4):
        assert torch.equal(repair_signs(loss, signs * samples), signs * samples)
    assert loss.passes == 0


def test_a_repair_is_two_passes() -> None:
    loss, samples = victim("relu", 4)
    repair_signs(loss, samples)
    assert loss.passes == 2
