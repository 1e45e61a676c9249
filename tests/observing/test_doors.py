"""One network is observed alike, whether a victim writes it, an audit reads it or Python is given it."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.auditing.module_target import target_of_module
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.defences.publication import Publication
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.networks.loading import load_factory
from exhume.observation import Initial, Observation, load_observation, save_observation
from exhume.observing.dense_layers import with_layers
from exhume.observing.of_head import observe_head
from exhume.observing.ridge_view import seen_as_ridge
from exhume.start_rule import StartRule
from exhume_papers.victims.network import NetworkVictim, train_network
from exhume_papers.victims.network_plans import FactoryConfig
from exhume_papers.victims.recipe import DescentRecipe

SHAPE = (1, 5, 5)
USERS = """
from torch import nn

def biased():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 60), nn.ReLU(), nn.Linear(60, 2))

def unbiased():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 60, bias=False), nn.ReLU(), nn.Linear(60, 2, bias=False))

def normed():
    norm = nn.BatchNorm1d(60)
    nn.init.normal_(norm.running_mean)
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 60), norm, nn.GELU(), nn.Linear(60, 2))

def deep():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 40), nn.ReLU(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 2))

def channels():
    return nn.Sequential(nn.Conv2d(1, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 2))

def few_channels():
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(54, 2))

def tokens():
    return nn.Sequential(nn.Flatten(1, 2), nn.Linear(5, 6), nn.LayerNorm(6), nn.Flatten(), nn.Linear(30, 2))
"""
RIDGE, OTHERS = ("biased", "unbiased", "normed"), ("deep", "channels", "few_channels", "tokens")


@pytest.fixture(autouse=True)
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "users_door_nets.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("users_door_nets", None)


def trained(name: str) -> tuple[NetworkVictim, nn.Module, dict[str, Tensor]]:
    """A victim whose start is known, and its network for the other doors: a module and the state before training."""
    data = load(DataConfig.parse(name="faces", samples=4, side=5))
    data = replace(data, class_names=("a", "b"), class_index=torch.arange(4) % 2)
    config = FactoryConfig(factory=f"users_door_nets:{name}", features_at="midpoint", recipe=DescentRecipe(steps=20))
    victim = train_network(config, data)
    features, head = victim.observation.features, victim.observation.head
    assert isinstance(features, ModuleFeatures)
    assert features.source is not None
    assert features.source.initial_state is not None
    assert head is not None
    model = load_factory(config.factory)
    ends = [
        {**state, **_head(features.source.head, matrix, features.constant)}
        for state, matrix in ((features.source.state, head), (features.source.initial_state, victim.initial_head))
    ]
    model.load_state_dict(ends[0])
    return victim, model, ends[1]


def _head(name: str, matrix: Tensor, biased: bool) -> dict[str, Tensor]:
    if not biased:
        return {f"{name}.weight": matrix}
    return {f"{name}.weight": matrix[:, :-1], f"{name}.bias": matrix[:, -1]}


def through_the_file(observation: Observation, path: Path, spec: str) -> Observation:
    save_observation(observation, path)
    return load_observation(path, spec)


def assert_same(found: Observation, expected: Observation) -> None:
    """Whoever trains a victim tells how many samples it had; nobody else does."""
    assert found.knowing(None).knowledge == expected.knowing(None).knowledge
    assert type(found.features) is type(expected.features)
    assert torch.equal(found.weights, expected.weights)
    for one, other in zip(_tensors(found), _tensors(expected), strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)
    assert len(found.layers) == len(expected.layers)
    for layer, twin in zip(found.layers, expected.layers, strict=True):
        assert (layer.name, layer.bias, layer.leak, layer.reads) == (twin.name, twin.bias, twin.leak, twin.reads)
        assert torch.equal(layer.target, twin.target)
        assert all(torch.equal(one, other) for one, other in zip(layer.ends, twin.ends, strict=True))


def _tensors(observation: Observation) -> list[Tensor | None]:
    features, before = observation.features, observation.initial_rows
    rows = torch.randn(3, observation.d, generator=torch.Generator().manual_seed(0))
    own = features.groups if isinstance(features, ModuleFeatures) else features.bias
    return [features(rows), own, observation.head, None if before is None else before.block(0, before.p)]


@pytest.mark.parametrize("name", [*RIDGE, *OTHERS])
def test_one_network_is_observed_alike_through_every_door(name: str, tmp_path: Path) -> None:
    victim, model, before = trained(name)
    norm = victim.observation.knowledge.norm
    python = exhume.observe(model, initial=before, input_shape=SHAPE, norm=norm)
    audited = target_of_module(model, initial=before, input_shape=SHAPE, norm=norm, image_shape=SHAPE)
    read = through_the_file(victim.observation, tmp_path / "o", f"users_door_nets:{name}")
    assert isinstance(python.features, RidgeFeatures if name in RIDGE else ModuleFeatures)
    assert python.knowledge.initial_body
    groups = None if isinstance(python.features, RidgeFeatures) else python.features.groups
    assert (groups is not None) == (name in ("channels", "tokens"))
    assert bool(python.layers) == (name in ("biased", "unbiased", "deep"))
    assert (python.initial_rows is not None) == (name in ("biased", "unbiased"))
    for found in (victim.observation, read):
        assert_same(seen_as_ridge(with_layers(found)), python)
    assert_same(audited.observation, python)


@pytest.mark.parametrize("name", RIDGE)
def test_a_head_that_is_pruned_and_then_seen_is_one_that_is_seen_and_then_pruned(name: str) -> None:
    victim, model, before = trained(name)
    whole = victim.observation
    assert whole.head is not None
    norm = whole.knowledge.norm
    python = exhume.observe(model, initial=before, input_shape=SHAPE, norm=norm)
    python = replace(python, layers=())
    kept, constant = torch.arange(0, 60, 7), torch.arange(60, whole.features.p)
    all_kept = torch.cat([kept, constant])
    pruned = Publication(whole, initial=victim.initial_head).keeping(all_kept, whole.head[:, all_kept]).observation
    later = Publication(python, initial=victim.initial_head[:, :60]).keeping(kept, whole.head[:, kept]).observation
    assert_same(seen_as_ridge(pruned), later)


@pytest.mark.parametrize(
    ("initial", "change"), [("zero", True), ("known", True), ("seed", False), ("distribution", False)]
)
def test_weights_are_the_change_of_a_head_whose_start_is_known(initial: Initial, change: bool) -> None:
    python = exhume.observe_features(torch.randn(6, 3), torch.randn(2, 6), "relu")
    head, start = torch.randn(2, 6), torch.zeros(2, 6) if initial == "zero" else torch.randn(2, 6)
    told = exhume.Knowledge(initial=initial)
    rule = StartRule("normal", 2, 6)
    seen = observe_head(python.features, head, told, initial=start, scale=0.5, start=rule)
    assert torch.equal(seen.weights, head - 0.5 * start if change else head)
    assert (seen.start is rule) == (initial == "seed")
    assert (seen.head is head) == (initial == "known")
