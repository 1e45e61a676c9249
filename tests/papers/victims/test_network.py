"""Networks of any kind as victims: what is observed of them."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures
from exhume.metrics.floor import floor_of
from exhume.networks.loading import load_factory
from exhume_papers.victims.network import NetworkVictim, train_network
from exhume_papers.victims.network_config import NetworkConfig
from exhume_papers.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig
from exhume_papers.victims.recipe import DescentRecipe

SPEC = "users_victim_nets:small"
USERS = """
from torch import nn

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 30), nn.Tanh(), nn.Linear(30, 2))

def softened():
    return nn.Sequential(small(), nn.Softplus())

def probe():
    body = nn.Sequential(nn.Flatten(), nn.Linear(25, 30), nn.Tanh()).requires_grad_(False)
    return nn.Sequential(body, nn.Linear(30, 2))

def convolving(channels):
    return nn.Sequential(nn.Conv2d(1, channels, 4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * channels, 2))

def many():
    return convolving(16)

def few():
    return convolving(3)

def normed():
    head = nn.utils.parametrizations.weight_norm(nn.Linear(9, 2))
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 9), nn.Tanh(), head)
"""
RECIPE = DescentRecipe(steps=25, until=1e-6)


@pytest.fixture(autouse=True)
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "users_victim_nets.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("users_victim_nets", None)


def faces(classes: int = 2, dtype: str = "float64") -> Dataset:
    data = load(DataConfig.parse(name="faces", samples=4, side=5, dtype=dtype))
    names = tuple(f"class {position}" for position in range(classes))
    return replace(data, class_names=names, class_index=torch.arange(4) % classes)


def outputs_of(victim: NetworkVictim, inputs: Tensor) -> Tensor:
    """Features times the head, which is the initial one and its change."""
    return victim.observation.features(inputs) @ (victim.initial_head + victim.observation.weights).T


def test_features_and_head_make_up_the_trained_network() -> None:
    data = faces()
    victim = train_network(FactoryConfig(factory=SPEC, recipe=DescentRecipe(until=1e-3)), data)
    assert victim.observation.weights.shape == (2, 31), "the bias is the weight of a constant feature"
    one_hot = torch.eye(2, dtype=torch.float64)[data.class_index]
    found = float((outputs_of(victim, data.inputs) - one_hot).square().mean())
    assert found == pytest.approx(victim.descent.loss, rel=1e-6)
    assert victim.observation.weights.dtype == torch.float64


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        (ResNetConfig(channels=3, kernel=6, blocks=1, recipe=RECIPE), [0] * 4 + [1] * 4 + [2] * 4),
        (VisionTransformerConfig(embedding=4, patch=5, depth=1, recipe=RECIPE), [0, 1, 2, 3]),
    ],
)
def test_channels_and_coordinates_of_tokens_are_groups(config: Any, groups: list[int]) -> None:
    features = train_network(config, faces(dtype="float32")).observation.features
    assert isinstance(features, ModuleFeatures)
    assert features.groups is not None
    assert features.groups.tolist() == groups


def test_channels_of_a_users_own_network_are_groups_where_there_are_enough_of_them() -> None:
    groups = {}
    for name in ("many", "few", "small"):
        config = FactoryConfig(factory=f"users_victim_nets:{name}", recipe=RECIPE)
        features = train_network(config, faces(dtype="float32")).observation.features
        assert isinstance(features, ModuleFeatures)
        groups[name] = features.groups
    assert groups["few"] is groups["small"] is None
    assert groups["many"] is not None
    assert groups["many"].tolist() == [channel for channel in range(16) for _ in range(4)] + [16], "the bias is alone"


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_what_weight_decay_left_of_the_start_is_taken_off_and_the_rest_is_explained_by_features(
    momentum: float,
) -> None:
    """With features that do not move, the change of the head is in their span exactly, and for no other multiple."""
    recipe = DescentRecipe(weight_decay=0.5, momentum=momentum, steps=30, step_size=0.05)
    victim = train_network(FactoryConfig(factory="users_victim_nets:probe", recipe=recipe), faces())
    if not momentum:
        assert victim.scale == pytest.approx((1 - 0.05 * 0.5) ** 30)
    assert 0.2 < victim.scale < 0.8
    assert floor_of(victim.observation, faces().inputs) < 1e-20
    head = victim.observation.weights + victim.decayed_head
    plain = replace(victim.observation, weights=head - victim.initial_head)
    assert floor_of(plain, faces().inputs) > 0.01


def test_a_seed_is_a_start_and_leaves_torch_s_own_stream_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    heads = [
        train_network(FactoryConfig(factory=SPEC, recipe=DescentRecipe(steps=1), seed=seed), faces()).initial_head
        for seed in (0, 0, 1)
    ]
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_a_head_that_starts_at_zero_is_observed_itself() -> None:
    victim = train_network(FactoryConfig(factory=SPEC, zero_head=True, recipe=RECIPE), faces())
    assert not victim.initial_head.any()
    assert victim.observation.knowledge.initial == "zero"


def test_what_comes_after_the_head_does_not_matter() -> None:
    config = FactoryConfig(factory="users_victim_nets:softened", head="0.3", recipe=RECIPE)
    assert train_network(config, faces()).observation.weights.shape == (2, 31)


def test_a_frozen_extractor_with_a_linear_probe_has_no_drift() -> None:
    data = faces()
    victim = train_network(FactoryConfig(factory="users_victim_nets:probe", recipe=RECIPE), data)
    seen, change = victim.observation.features(data.inputs), victim.observation.weights
    left = change.T - seen.T @ torch.linalg.lstsq(seen.T, change.T).solution
    assert float(left.norm()) < 1e-12 * float(change.norm())


def test_a_head_without_plain_weights_is_refused() -> None:
    config = FactoryConfig(factory="users_victim_nets:normed", recipe=RECIPE)
    with pytest.raises(UsageError, match="a head with a plain weight and bias, found bias, parametrizations"):
        train_network(config, faces())


def test_the_model_of_the_user_is_built_anew_for_the_observation() -> None:
    victim = train_network(FactoryConfig(factory=SPEC, recipe=RECIPE), faces())
    features = victim.observation.features
    assert isinstance(features, ModuleFeatures)
    assert features.source is not None
    assert set(features.source.state) == {"1.weight", "1.bias"}
    assert set(load_factory(SPEC).state_dict()) == {"1.weight", "1.bias", "3.weight", "3.bias"}


@pytest.mark.parametrize("shape", [(5, 5, 5), (0, 25), (24,)])
def test_shapes_of_another_size_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="an image shape of d = 25 numbers"):
        train_network(FactoryConfig(factory=SPEC, input_shape=shape), faces())


def test_images_that_are_not_square_are_refused_where_they_have_to_be() -> None:
    data = faces()
    with pytest.raises(UsageError, match="expected square images for a ResNet, found 1x25"):
        train_network(ResNetConfig(channels=2), replace(data, image_shape=(1, 1, 25)))


def test_a_start_at_zero_and_the_knowledge_of_it_come_together() -> None:
    assert NetworkConfig(zero_head=True).initial == "zero"
    assert NetworkConfig.model_validate({"initial": "zero"}).zero_head
    assert NetworkConfig().initial == "known"
    assert NetworkConfig.model_validate(NetworkConfig(zero_head=True).model_dump()) == NetworkConfig(zero_head=True)
    for fields in (
        {"zero_head": True, "initial": "distribution"},
        {"zero_head": False, "initial": "zero"},
        {"features_at": "midpoint", "initial": "distribution"},
    ):
        with pytest.raises(UsageError):
            NetworkConfig.model_validate(fields)
