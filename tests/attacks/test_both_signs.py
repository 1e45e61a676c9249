import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.both_signs import BothSigns
from exhume.attacks.single_layer.pruning import needed
from exhume.attacks.single_layer.signs import trimmed
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

D, N, P = 12, 5, 900
LINEAR_PLUS_EVEN = ["relu", "gelu", "softplus"]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def victim(name: str, k: int = 1) -> tuple[SpanLoss, Tensor, Tensor]:
    features = RidgeFeatures(hold(DrawnRows(4, P, D), dtype=torch.float64), activation(name))
    samples = to_norm(normal(N, D, seed=2), D**0.5)
    coefficients = normal(k, N, seed=3)
    coefficients = coefficients + 0.4 * coefficients.sign()
    return SpanLoss(features, coefficients @ features(samples), torch.float64), samples, coefficients


def with_wrong_signs_behind_ghosts(samples: Tensor, coefficients: Tensor) -> Tensor:
    """Two samples turned round, and the pair ±u whose linear term makes up for them exactly."""
    turned = samples.clone()
    turned[:2] *= -1
    ghost = to_norm((coefficients[:1, :2] @ samples[:2]), D**0.5)
    return torch.cat([turned, ghost, -ghost])


@pytest.mark.parametrize("name", LINEAR_PLUS_EVEN)
def test_ghosts_that_hide_wrong_signs_fit_perfectly_and_are_seen_through(name: str) -> None:
    loss, samples, coefficients = victim(name)
    candidates = with_wrong_signs_behind_ghosts(samples, coefficients)
    fit = loss.fit(candidates)
    assert fit.loss < 1e-20, "the loss alone sees nothing wrong"
    assert torch.equal(trimmed(loss, fit, 1e-9), samples)


@pytest.mark.parametrize("name", LINEAR_PLUS_EVEN)
def test_without_both_signs_each_ghost_seems_needed(name: str) -> None:
    loss, samples, coefficients = victim(name)
    fit = loss.fit(with_wrong_signs_behind_ghosts(samples, coefficients))
    assert bool(needed(fit.gram, fit.gram @ fit.coefficients, loss.energy, 1e-9).all())


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", ["relu", "tanh", "erf", "relu+tanh"])
def test_idle_candidates_and_copies_go_whatever_the_activation(name: str, k: int) -> None:
    loss, samples, _ = victim(name, k)
    idle = to_norm(normal(3, D, seed=8), D**0.5)
    kept = trimmed(loss, loss.fit(torch.cat([samples, idle, samples[:1]])), 1e-9)
    cosines = (kept @ samples.T / D).abs()
    assert len(kept) == N
    assert cosines.max(dim=0).values.min() > 0.999


def test_what_the_weights_need_is_never_cheap() -> None:
    loss, samples, _ = victim("relu")
    assert bool(BothSigns.of(loss, samples).needed(1e-4).all())


def test_the_order_of_removal_is_that_of_refitting_without_each() -> None:
    """The naive twin: refit without every candidate in turn, and drop the one that costs least."""
    loss, samples, _ = victim("relu")
    candidates = to_norm(torch.cat([samples, samples[:2]]) + 0.3 * normal(N + 2, D, seed=6), D**0.5)
    fit = loss.fit(candidates)
    negligible = 0.01
    kept = list(range(len(candidates)))
    while len(kept) > 1:
        rises = [loss.fit(candidates[[j for j in kept if j != i]]).loss - loss.fit(candidates[kept]).loss for i in kept]
        if min(rises) > negligible:
            break
        kept.pop(rises.index(min(rises)))
    found = needed(fit.gram, fit.gram @ fit.coefficients, loss.energy, negligible)
    assert found.nonzero()[:, 0].tolist() == kept
    assert 1 < len(kept) < len(candidates)


def test_a_part_is_what_would_be_summed_for_these_candidates_alone() -> None:
    loss, samples, _ = victim("gelu", k=2)
    kept = torch.tensor([True, False, True, True, False])
    part, alone = BothSigns.of(loss, samples).part(kept), BothSigns.of(loss, samples[kept])
    torch.testing.assert_close(part.gram, alone.gram)
    torch.testing.assert_close(part.moments, alone.moments)
