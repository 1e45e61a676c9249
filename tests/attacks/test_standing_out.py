"""Samples stand out from what only explains the drift of trained features."""

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.single_layer.standing_out import standing_out
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.metrics.errors import reconstruction_error
from exhume.observation import Knowledge, Observation

D, N, P = 10, 3, 600


def on_the_sphere(count: int, seed: int) -> Tensor:
    rows = torch.randn(count, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows * D**0.5 / rows.norm(dim=1, keepdim=True)


def features(trained: bool) -> RidgeFeatures:
    return RidgeFeatures(HeldRows(on_the_sphere(P, 0) / D**0.5), activation("relu"), trained=trained)


def weights(drift: float, weakest: float = 0.5) -> Tensor:
    """Three samples, and twelve small terms of the kind that features which moved leave behind."""
    of = features(False)
    sizes = torch.tensor([1.0, -0.7, weakest], dtype=torch.float64)
    small = torch.linspace(-1, 1, 12, dtype=torch.float64) * drift
    return (sizes @ of(on_the_sphere(N, 1)) + small @ of(on_the_sphere(12, 2)))[None]


def fitted(candidates: Tensor, theta: Tensor) -> tuple[SpanLoss, Fit]:
    loss = SpanLoss(features(True), theta, torch.float64)
    return loss, loss.fit(candidates)


def test_samples_stand_out_from_others_and_from_what_is_left() -> None:
    theta = weights(1e-3)
    loss, fit = fitted(torch.cat([on_the_sphere(2, 7), on_the_sphere(N, 1), on_the_sphere(2, 8)]), theta)
    found = standing_out(loss, fit)
    assert found is not None
    assert found.upper.tolist() == [False, False, True, True, True, False, False]
    assert found.left == pytest.approx(loss.fit(on_the_sphere(N, 1)).loss)
    assert found.complete  # four were tried besides
    loss, fit = fitted(on_the_sphere(N, 1), theta)
    found = standing_out(loss, fit)
    assert found is not None
    assert bool(found.upper.all())


def test_nothing_stands_out_while_a_sample_is_missing_or_the_drift_is_as_large() -> None:
    loss, fit = fitted(on_the_sphere(N, 1)[:2], weights(1e-3))
    assert standing_out(loss, fit) is None
    loss, fit = fitted(torch.cat([on_the_sphere(N, 1), on_the_sphere(3, 7)]), weights(0.2))
    assert standing_out(loss, fit) is None


def test_a_weak_sample_that_is_missing_is_not_taken_for_drift_before_others_were_tried() -> None:
    loss, fit = fitted(on_the_sphere(N, 1)[:2], weights(0.0, weakest=0.05))
    found = standing_out(loss, fit)
    assert found is None or not found.complete


@pytest.mark.parametrize(("trained", "most"), [(True, N), (False, None)])
def test_trained_features_give_their_samples_and_random_ones_everything_that_is_there(
    trained: bool, most: int | None
) -> None:
    seen = Observation(features(trained), weights(3e-3), Knowledge(None, D**0.5))
    found = run_attack(seen, SplitNewton(), limits=Limits()).reconstruction
    if most is None:
        assert len(found.candidates) > N
    else:
        assert len(found.candidates) == most
        assert reconstruction_error(on_the_sphere(N, 1), found.candidates) < 0.02


def test_a_weak_sample_is_not_taken_for_drift() -> None:
    theta = weights(1e-4, weakest=0.05)
    loss, fit = fitted(torch.cat([on_the_sphere(N, 1), on_the_sphere(4, 7)]), theta)
    found = standing_out(loss, fit)
    assert found is not None
    assert found.upper.tolist() == [True] * N + [False] * 4
    seen = Observation(features(True), theta, Knowledge(None, D**0.5))
    attacked = run_attack(seen, SplitNewton(), limits=Limits()).reconstruction
    assert len(attacked.candidates) == N
    assert reconstruction_error(on_the_sphere(N, 1), attacked.candidates) < 0.02
