import copy
import math
import sys

import pytest
import torch
from torch import Tensor, nn

from exhume.activations import activation
from exhume.attacks.ridge.span import SpanLoss
from exhume.defences.private import PrivateHead, PrivateRecipe, epsilon, train_private_head, train_private_module
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.observation import Knowledge

N, D, P = 6, 5, 300
FEATURES = RidgeFeatures(DrawnRows(0, P, D), activation("relu"))


def draw(k: int = 1) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    return torch.randn(N, D, generator=stream), torch.randn(N, k, generator=stream)


def head(**settings: float | int) -> PrivateHead:
    inputs, targets = draw()
    recipe = PrivateRecipe.parse(**{"clip": 5.0, "noise": 0.5, "steps": 10, **settings})
    return train_private_head(FEATURES, inputs, targets, "square", recipe, Knowledge(samples=N))


@pytest.fixture(scope="module", autouse=True)
def _needs_opacus() -> None:
    pytest.importorskip("opacus", reason="an extra: pip install 'exhume[dp]'")


def test_without_noise_and_clipping_it_is_gradient_descent() -> None:
    inputs, targets = draw(2)
    model = nn.Sequential(nn.Linear(D, 7), nn.Tanh(), nn.Linear(7, 2))
    recipe = PrivateRecipe(clip=1e9, noise=0, steps=4, step_size=0.3, momentum=0.5)
    private = train_private_module(model, inputs, targets, "square", recipe)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3, momentum=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.mse_loss(plain(inputs), targets).backward()
        optimizer.step()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(private.model.state_dict()[name], value, atol=1e-5, rtol=1e-5)
        assert torch.equal(private.initial[name], model.state_dict()[name])
    assert private.epsilon == math.inf
    reached = nn.functional.mse_loss(plain(inputs), targets).item()
    assert private.training_loss == pytest.approx(reached, rel=1e-4)


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


def test_dropout_is_off_and_the_trained_module_is_an_ordinary_one() -> None:
    inputs, targets = draw()
    model = nn.Sequential(nn.Linear(D, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    recipe = PrivateRecipe(clip=1.0, noise=0.1, steps=3)
    one, again = (train_private_module(model, inputs, targets, "square", recipe) for _ in range(2))
    assert one.note is not None
    assert "dropout" in one.note
    assert torch.equal(one.model(inputs), again.model(inputs))
    assert not any(layer.training for layer in one.model.modules())
    assert set(one.model.state_dict()) == set(model.state_dict())
    for parameter in one.model.parameters():
        assert parameter.grad is None
        assert not hasattr(parameter, "grad_sample")
        assert not hasattr(parameter, "summed_grad")
    copy.deepcopy(one.model)(inputs).sum().backward()


def test_images_and_frozen_layers_work() -> None:
    inputs, targets = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)), torch.ones(4, 1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    model[0].requires_grad_(False)
    recipe = PrivateRecipe(clip=1.0, noise=0.1, steps=3)
    done = train_private_module(model, inputs, targets, "square", recipe, (1, 4, 4))
    assert torch.equal(done.model.state_dict()["0.weight"], model.state_dict()["0.weight"])
    assert not torch.equal(done.model.state_dict()["3.weight"], model.state_dict()["3.weight"])


def test_what_cannot_be_trained_is_one_line() -> None:
    inputs, targets = draw()
    recipe = PrivateRecipe(clip=1.0, noise=1.0, steps=1)
    with pytest.raises(UsageError, match="sample by sample") as caught:
        train_private_module(nn.Sequential(nn.Linear(D, 1), nn.BatchNorm1d(1)), inputs, targets, "square", recipe)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="none that require a gradient"):
        train_private_module(nn.Linear(D, 1).requires_grad_(False), inputs, targets, "square", recipe)
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
