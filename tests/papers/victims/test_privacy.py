import math
import sys

import pytest
import torch
from torch import Tensor, nn

from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.defences.private import PrivateRecipe, epsilon
from exhume.errors import UsageError
from exhume.features.rows import hold
from exhume.metrics.floor import floor_of
from exhume.observation import Observation
from exhume_papers.victims.network import train_network
from exhume_papers.victims.network_plans import ResNetConfig
from exhume_papers.victims.privacy import (
    Privacy,
    Spent,
    median_gradient_norm,
    noise_for,
    private_recipe,
    train_privately,
)
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_private_random_features
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

SPHERE = load(DataConfig(name="sphere", samples=5, dim=8))
FACES = load(DataConfig(name="faces", samples=3, side=5))


@pytest.fixture(scope="module", autouse=True)
def _needs_opacus() -> None:
    pytest.importorskip("opacus", reason="an extra: pip install 'exhume[dp]'")


def small() -> tuple[nn.Module, Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    return nn.Linear(4, 1), torch.randn(6, 4, generator=stream), torch.randn(6, 1, generator=stream)


@pytest.mark.parametrize("rate", [1.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_the_noise_for_an_epsilon_keeps_just_below_it(rate: float) -> None:
    sigma = noise_for(3.0, 1e-5, rate, 20)
    spent = epsilon(PrivateRecipe(clip=1, noise=sigma, steps=20), rate)
    assert 2.9 < spent <= 3.0


def test_a_clip_that_is_not_given_is_the_median_norm_of_the_samples_gradients() -> None:
    model, inputs, targets = small()
    norms = []
    for row, target in zip(inputs, targets, strict=True):
        model.zero_grad()
        (model(row) - target).square().sum().backward()
        norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)))
    assert median_gradient_norm(model, inputs, targets, "square") == pytest.approx(sorted(norms)[2], rel=1e-5)


def test_what_was_measured_on_the_data_is_said() -> None:
    model, inputs, targets = small()
    given = train_privately(
        model, inputs, targets, "square", Privacy(noise=1, clip=2.0, steps=3), DescentRecipe(step_size=0.1)
    )
    assert given.spent.measured == ()
    assert given.spent.describe().endswith("(noise multiplier 1, clip 2, 3 steps)")
    measured = train_privately(model, inputs, targets, "square", Privacy(noise=1, steps=3), DescentRecipe()).spent
    assert measured.measured == ("clip", "step size")
    assert measured.describe().endswith(
        "the clip and the step size were measured on the data, which epsilon does not cover"
    )
    assert measured.numbers()["epsilon"] == pytest.approx(measured.epsilon)


def test_without_noise_there_is_no_epsilon_to_write_down() -> None:
    spent = Spent(math.inf, 1e-5, 0.0, 1.0, 3, ())
    assert spent.numbers()["epsilon"] is None
    assert spent.describe().startswith("DP-SGD: no finite epsilon at delta 1e-05")


def test_mini_batches_of_sgd_are_drawn_at_their_rate() -> None:
    model, inputs, targets = small()
    used = private_recipe(
        Privacy(noise=1), DescentRecipe(method="sgd", batch_size=2, seed=7), model, inputs, targets, "square"
    )
    assert (used.batch, used.seed) == (2, 7)
    assert used.rate(6) == pytest.approx(1 / 3)


def private(observation: Observation, spent: Spent | None, inputs: Tensor) -> float:
    """The floor: noise takes weights out of the span of the features."""
    assert spent is not None
    assert 0 < spent.epsilon < math.inf
    return floor_of(observation, inputs)


def test_every_kind_of_victim_can_be_trained_privately_and_noise_raises_the_floor() -> None:
    floors = {}
    for noise in (1e-6, 3.0):
        privacy = Privacy(noise=noise, steps=4)
        rf = RandomFeaturesConfig(params=60, privacy=privacy)
        alone = train_private_random_features(rf, SPHERE, hold(draw_rows(rf, 8)))
        two = train_two_layer(TwoLayerConfig(width=40, privacy=privacy), SPHERE)
        deep = train_network(ResNetConfig(channels=3, kernel=6, privacy=privacy), FACES)
        floors[noise] = [
            private(alone.observation, alone.spent, SPHERE.inputs),
            private(two.observation, two.spent, SPHERE.inputs),
            private(deep.observation, deep.spent, FACES.inputs),
        ]
        assert (alone.descent.steps, two.descent.steps, deep.descent.steps) == (4, 4, 4)
        torch.testing.assert_close(two.observation.weights, two.head - two.initial_head)
    assert all(calm < 0.05 and loud > 0.3 for calm, loud in zip(*floors.values(), strict=True))


def test_progress_is_told_every_step() -> None:
    model, inputs, targets = small()
    seen: list[int] = []
    privacy = Privacy(noise=1, clip=1, steps=4)
    train_privately(
        model, inputs, targets, "square", privacy, DescentRecipe(), progress=lambda steps, loss: seen.append(steps)
    )
    assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "one of --epsilon and --noise-multiplier for private training, found neither"),
        ({"epsilon": 1.0, "noise": 1.0}, "found both"),
        ({"epsilon": 0.0}, "epsilon to be greater than 0, found 0.0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta to be less than 1, found 1.0"),
        ({"epsilon": 1.0, "steps": 0}, "steps to be greater than or equal to 1, found 0"),
        ({"noise": -1.0}, "noise to be greater than or equal to 0, found -1.0"),
    ],
)
def test_impossible_wishes_are_one_line(fields: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Privacy.parse(**fields)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (DescentRecipe(method="adam"), "gd or sgd without weight decay for private training, found adam"),
        (DescentRecipe(weight_decay=0.1), "found weight decay 0.1"),
        (DescentRecipe(until=1e-3), "private training to take all its steps, found a loss of 0.001 to stop at"),
    ],
)
def test_recipes_that_dp_sgd_does_not_know_are_refused(recipe: DescentRecipe, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TwoLayerConfig.parse(width=5, recipe=recipe, privacy=Privacy(noise=1))


def test_an_epsilon_that_no_noise_reaches_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"some noise reaches in 10 steps at delta 1e-05, found 1e-09"):
        noise_for(1e-9, 1e-5, 1.0, 10)
    with pytest.raises(UsageError, match="without a ridge penalty"):
        RandomFeaturesConfig(params=3, fit="ridge", ridge=1.0, privacy=Privacy(noise=1))


def test_without_opacus_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(UsageError, match=r"expected Opacus .* found none; pip install 'exhume\[dp\]'"):
        train_two_layer(TwoLayerConfig(width=5, privacy=Privacy(epsilon=1.0)), SPHERE)
