from collections.abc import Generator

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.levenberg import DampingState
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.search_context import Fits
from exhume.attacks.single_layer.signs import repair_signs
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.turning import Turning, signs_tell
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold
from exhume.metrics.errors import signed_error

D, N, SMALL, SECOND = 60, 10, 3, 7
RULE = Levenberg(0, forcing=0.01, damping_floor=1e-8, stall=8, stall_factor=0.7)


def victim(size: float, seed: int, noise: float = 0.0) -> tuple[SpanLoss, Tensor]:
    """Weights in which one sample has a small coefficient, and a second one a larger one that is still small."""
    stream = torch.Generator().manual_seed(seed)
    samples = to_norm(torch.randn(N, D, generator=stream), D**0.5)
    coefficients = torch.randn(1, N, generator=stream)
    coefficients += 0.3 * coefficients.sign()
    coefficients[0, [SMALL, SECOND]] = torch.tensor([size, 2 * size])
    features = RidgeFeatures(hold(DrawnRows(1, 3 * D * N, D)), activation("relu"))
    weights = coefficients @ features(samples)
    weights += noise * weights.norm() / weights.numel() ** 0.5 * torch.randn(weights.shape, generator=stream)
    return SpanLoss(features, weights), samples


def settle(loss: SpanLoss, fit: Fit, iterations: int) -> Fits:
    for refined in RULE.refine(loss, fit, D**0.5, iterations, pace=DampingState(0.1)):
        fit = refined
        yield fit
    return fit


def result(fits: Generator[Fit, None, Fit]) -> Fit:
    while True:
        try:
            next(fits)
        except StopIteration as end:
            return end.value


def settled_with_a_wrong_sign(loss: SpanLoss, samples: Tensor) -> Fit:
    start = samples.clone()
    start[SMALL] *= -1
    return result(settle(loss, loss.fit(start), 40))


TURNING = Turning(lambda loss, fit: settle(loss, fit, 12))


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("size", [0.05, 0.1, 0.2])
def test_a_wrong_sign_that_no_flip_at_its_place_would_mend_is_turned(size: float, seed: int) -> None:
    loss, samples = victim(size, seed)
    stuck = settled_with_a_wrong_sign(loss, samples)
    assert torch.equal(repair_signs(loss, stuck.candidates), stuck.candidates), "signs alone do not tell"
    assert signed_error(samples, stuck.candidates) > 0.15
    turned = result(TURNING.run(loss, stuck))
    assert turned.loss < stuck.loss / 10
    assert signed_error(samples, turned.candidates) < 0.02


def test_nothing_is_turned_where_all_signs_are_right_and_noise_is_what_is_left() -> None:
    loss, samples = victim(0.15, seed=2, noise=0.02)
    fit = result(settle(loss, loss.fit(samples), 40))
    assert fit.loss > 1e-5
    assert result(TURNING.run(loss, fit)) is fit


def test_an_interruption_during_a_trial_keeps_what_was_there_before() -> None:
    loss, samples = victim(0.15, seed=2)
    stuck = settled_with_a_wrong_sign(loss, samples)
    shown = list(TURNING.run(loss, stuck))
    assert shown
    assert all(fit is stuck for fit in shown)


def test_as_many_as_asked_are_tried_those_that_explain_least_first() -> None:
    loss, samples = victim(0.15, seed=2)
    stuck = settled_with_a_wrong_sign(loss, samples)
    tried: list[int] = []

    def refuse(loss: SpanLoss, fit: Fit) -> Fits:
        tried.append(int((fit.candidates - stuck.candidates).norm(dim=1).argmax()))
        yield fit
        return fit

    assert result(Turning(refuse, tries=2).run(loss, stuck)) is stuck
    assert tried == [SMALL, SECOND]
    assert result(Turning(refuse, ghost=1e9).run(loss, stuck)) is stuck
    assert len(tried) == 2, "ghosts are not turned"


@pytest.mark.parametrize(
    ("name", "bias", "tells"), [("relu", False, True), ("relu", True, False), ("erf", False, False)]
)
def test_signs_tell_where_features_of_opposites_differ_by_a_linear_term(name: str, bias: bool, tells: bool) -> None:
    shift = torch.ones(40) if bias else None
    features = RidgeFeatures(hold(DrawnRows(1, 40, 4)), activation(name), shift)
    assert signs_tell(SpanLoss(features, torch.ones(1, 40))) == tells
