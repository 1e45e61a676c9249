import math
import sys

import pytest
import torch
from torch import Tensor, nn

from exhume.activations import activation
from exhume.attacks.single_layer.span import SpanLoss
from exhume.defences.private import PrivateHead, PrivateRecipe, epsilon, train_private_head
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.observation import Knowledge
from exhume_papers.victims.private import train_private_module

N, D, P = 6, 5, 300
FEATURES = RidgeFeatures(DrawnRows(0, P, D), activation("relu"))


def draw(k: int = 1) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    return torch.randn(N, D, generator=stream), torch.randn(N, k, generator=stream)


def head(**settings: float | int) -> PrivateHead:
    inputs, targets = draw()
    recipe = PrivateRecipe.parse(**{"clip": 5.0, "noise": 0.5, "steps": 10, **settings})
    return train_private_head(FEATURES, inputs, targets, recipe, Knowledge(samples=N))


@pytest.fixture(scope="module", autouse=True)
def _needs_opacus() -> None:
    pytest.importorskip("opacus", reason="an extra: pip install 'exhume[dp]'")


def test_a_step_is_the_mean_of_clipped_gradients_and_noise_of_sigma_times_the_clip() -> None:
    inputs, targets = draw()
    features = FEATURES(inputs)
    gradients = -2 * targets * features  # of (φ(x)·θ − y)² at θ = 0
    norms = gradients.norm(dim=1)
    clip = float(norms.median())
    clipped = (gradients * (clip / norms).clamp(max=1)[:, None]).mean(dim=0)
    weights = head(clip=clip, noise=0, steps=1, step_size=1.0).observation.weights[0]
    torch.testing.assert_close(-weights, clipped, atol=1e-4, rtol=1e-4)
    noisy = head(clip=clip, noise=2.0, steps=1, step_size=1.0).observation.weights[0]
    assert float((noisy - weights).std()) == pytest.approx(2 * clip / N, rel=0.15)


@pytest.mark.parametrize("settings", [{}, {"batch": 2, "momentum": 0.5}, {"noise": 0, "clip": 0.1}])
def test_it_is_what_opacus_does_with_the_gradients_of_single_samples(settings: dict[str, float]) -> None:
    inputs, targets = draw(3)
    recipe = PrivateRecipe.parse(**{"clip": 1.0, "noise": 0.5, "steps": 10, "step_size": 0.05, **settings})
    module = nn.Linear(P, 3, bias=False)
    nn.init.zeros_(module.weight)
    twin = train_private_module(module, FEATURES(inputs), targets, "square", recipe)
    found = train_private_head(FEATURES, inputs, targets, recipe, Knowledge(samples=N))
    torch.testing.assert_close(found.observation.weights, twin.model.state_dict()["weight"], atol=1e-6, rtol=1e-5)
    assert found.epsilon == twin.epsilon
    assert found.training_loss == pytest.approx(twin.training_loss)


def test_the_step_is_one_over_the_largest_curvature() -> None:
    inputs, targets = draw(3)
    recipe = PrivateRecipe(clip=1.0, noise=0.5, steps=1, momentum=0.5)
    found = train_private_head(FEATURES, inputs, targets, recipe, Knowledge(samples=N)).step_size
    module = nn.Linear(P, 3, bias=False)
    nn.init.zeros_(module.weight)
    twin = train_private_module(module, FEATURES(inputs), targets, "square", recipe).step_size
    assert found == pytest.approx(twin, rel=0.01)


def test_clipped_gradients_keep_a_head_in_the_span_and_noise_does_not() -> None:
    inputs, _ = draw()

    def outside(trained: PrivateHead) -> float:
        return SpanLoss(FEATURES, trained.observation.weights, torch.float64).fit(inputs.double()).loss

    assert outside(head(noise=0, clip=0.1, batch=2)) < 1e-9
    assert outside(head(noise=1.0)) > 0.1


def test_the_seed_decides_batches_and_noise() -> None:
    one, again, other = (head(seed=seed, batch=2).observation.weights for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_the_random_numbers_of_others_are_left_alone() -> None:
    before = torch.get_rng_state()
    head(batch=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_may_be_empty_and_are_then_noise_alone() -> None:
    # with 1 of 6 samples expected, a third of the batches is empty
    assert math.isfinite(head(batch=1, steps=30).training_loss)
    still = head(batch=1, steps=30, noise=0, clip=1e-9, step_size=1.0).observation.weights
    assert float(still.norm()) <= 30 * N * 1e-9


def test_privacy_is_better_with_more_noise_fewer_steps_and_smaller_batches() -> None:
    base = {"clip": 1.0, "noise": 1.0, "steps": 100}
    usual = epsilon(PrivateRecipe.parse(**base), 1.0)
    assert epsilon(PrivateRecipe.parse(**base, delta=1e-7), 1.0) > usual
    assert epsilon(PrivateRecipe.parse(**{**base, "noise": 2.0}), 1.0) < usual
    assert epsilon(PrivateRecipe.parse(**{**base, "steps": 50}), 1.0) < usual
    assert epsilon(PrivateRecipe.parse(**base), 0.1) < 0.3 * usual
    assert head(noise=0).epsilon == math.inf


def test_one_full_batch_step_is_the_gaussian_mechanism() -> None:
    found = epsilon(PrivateRecipe(clip=1.0, noise=1.0, steps=1, delta=1e-5), 1.0)
    # the exact value for sigma = 1 and delta = 1e-5 is 4.38; Rényi accounting is an upper bound close to it
    assert 4.38 <= found < 5.5


def test_what_cannot_be_trained_is_one_line() -> None:
    with pytest.raises(UsageError, match="at most the 6 samples, found 7"):
        head(batch=7)
    with pytest.raises(ExhumeError, match="finite"):
        head(step_size=1e38, clip=1e38, noise=0, steps=2)
    for fields in ({"clip": 0}, {"noise": -1}, {"steps": 0}, {"delta": 1}, {"batch": 0}, {"speed": 1}):
        with pytest.raises(UsageError, match=r"^expected"):
            head(**fields)


def test_without_opacus_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(UsageError, match=r"pip install 'exhume\[dp\]'"):
        head()
