"""What the KKT conditions need of a victim: a first layer that starts small, and a way to large margins."""

import pytest
import torch

from exhume import seeds
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.features.rows import hold
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer


def sphere() -> Dataset:
    given = {"name": "sphere", "samples": 4, "dim": 9, "label_rule": "sign", "dtype": "float64"}
    return load(DataConfig.parse(**given, seed=seeds.derive(0, "data")))


def test_the_first_layer_starts_at_its_size_and_is_known_at_it() -> None:
    recipe = DescentRecipe(steps=1, step_size=1e-12)
    config = TwoLayerConfig(width=30, first_scale=0.01, knows_first_layer=True, recipe=recipe)
    victim = train_two_layer(config, sphere())
    usual = hold(victim.initial_rows, dtype=torch.float64).values
    assert victim.observation.initial_rows is not None
    torch.testing.assert_close(victim.observation.initial_rows.block(0, 30), 0.01 * usual)
    torch.testing.assert_close(victim.observation.ridge.rows.block(0, 30), 0.01 * usual, rtol=1e-6, atol=1e-9)
    assert victim.scale == pytest.approx(1), "no decay, whatever the size"


def test_adam_starts_from_the_same_layer() -> None:
    config = TwoLayerConfig(width=30, first_scale=0.01, recipe=DescentRecipe(method="adam", steps=1, step_size=1e-12))
    victim = train_two_layer(config, sphere())
    usual = hold(victim.initial_rows, dtype=torch.float64).values
    torch.testing.assert_close(victim.observation.ridge.rows.block(0, 30), 0.01 * usual, rtol=1e-5, atol=1e-9)


def test_weight_decay_is_told_apart_from_a_small_start() -> None:
    recipe = DescentRecipe(steps=200, step_size=1e-3, weight_decay=0.5)
    victim = train_two_layer(TwoLayerConfig(width=30, first_scale=0.01, recipe=recipe), sphere())
    assert victim.scale == pytest.approx((1 - 1e-3 * 0.5) ** 200)


def test_the_trained_head_is_shown_beside_its_change() -> None:
    observation = train_two_layer(TwoLayerConfig(width=30, recipe=DescentRecipe(steps=5)), sphere()).observation
    assert observation.published_head is not None
    assert not torch.equal(observation.published_head, observation.weights)


def test_a_growing_step_comes_to_large_margins_in_few_steps() -> None:
    ended = {}
    for growing in (True, False):
        recipe = DescentRecipe(until=1e-5, steps=600, growing=growing)
        ended[growing] = train_two_layer(TwoLayerConfig(width=40, loss="logistic", recipe=recipe), sphere()).descent
    assert ended[True].stopped == "target"
    assert ended[False].stopped == "steps"
    assert ended[False].loss > 10 * ended[True].loss


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(UsageError, match="growing step"):
        DescentRecipe.parse(growing=True, momentum=0.9)
    with pytest.raises(UsageError, match="usual size"):
        TwoLayerConfig.parse(width=3, first_scale=0.1, features_at="midpoint")
