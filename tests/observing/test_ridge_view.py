"""Networks whose features are φ(Wx + b) are seen as such, whatever code made them."""

import sys
from pathlib import Path

import pytest
import torch

import exhume
from exhume.features.module import ModuleFeatures
from exhume.features.network import network_features
from exhume.features.network_source import NetworkSource
from exhume.features.ridge import RidgeFeatures
from exhume.observation import Knowledge, Observation
from exhume.observing.ridge_view import seen_as_ridge

CODE = """
import torch
from torch import nn

def shallow():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 200), nn.GELU(), nn.Linear(200, 1))

def deep():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 30), nn.GELU(), nn.Linear(30, 200), nn.GELU(), nn.Linear(200, 1))
"""


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "users_ridge_nets.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("users_ridge_nets", None)
    return "users_ridge_nets"


def observed(spec: str, head: str, bias: bool = False) -> tuple[Observation, torch.Tensor]:
    module, _, name = spec.partition(":")
    model = getattr(__import__(module), name)()
    state = {key: value for key, value in model.state_dict().items() if not key.startswith(head)}
    features = network_features(NetworkSource(spec, head, (2, 4), state, bias=bias), spec)
    samples = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    samples *= 8**0.5 / samples.norm(dim=1, keepdim=True)
    weights = torch.tensor([[1.0, -0.7]]) @ features(samples)
    return Observation(features, weights, Knowledge(norm=8**0.5)), samples


@pytest.mark.parametrize("bias", [False, True])
def test_a_hidden_layer_is_seen_as_rows_of_v(users: str, bias: bool) -> None:
    observation, samples = observed(f"{users}:shallow", "3", bias)
    seen = seen_as_ridge(observation)
    assert isinstance(seen.features, RidgeFeatures)
    assert (seen.features.p, seen.features.activation.name, seen.features.trained) == (200, "gelu", True)
    assert seen.weights.shape == (1, 200), "without the weight of the constant feature"
    torch.testing.assert_close(seen.ridge(samples), observation.features(samples)[:, :200], rtol=1e-4, atol=1e-5)


def test_of_a_pruned_head_the_features_that_are_left_are_seen(users: str) -> None:
    observation, samples = observed(f"{users}:shallow", "3", bias=True)
    features = observation.features
    assert isinstance(features, ModuleFeatures)
    kept = torch.tensor([3, 10, 50, 200])  # the last one is the constant
    pruned = Observation(features.part(kept), observation.weights[:, kept], observation.knowledge)
    seen = seen_as_ridge(pruned)
    assert seen.weights.shape == (1, 3)
    torch.testing.assert_close(seen.ridge(samples), features(samples)[:, kept[:3]], rtol=1e-4, atol=1e-5)


def test_a_deep_network_stays_a_network(users: str) -> None:
    observation, _ = observed(f"{users}:deep", "5")
    assert seen_as_ridge(observation) is observation


def test_it_is_then_attacked_exactly(users: str) -> None:
    observation, samples = observed(f"{users}:shallow", "3")
    found = exhume.reconstruct(observation)
    assert found.method == "split-newton"
    assert torch.cdist(samples, found.candidates).min(dim=1).values.max() < 1e-3


def test_with_its_start_known_it_is_seen_halfway_and_shows_the_change_of_its_first_layer(users: str) -> None:
    observation, samples = observed(f"{users}:shallow", "3")
    assert isinstance(observation.features, ModuleFeatures)
    source = observation.features.source
    assert source is not None
    initial = {name: value + 0.1 for name, value in source.state.items()}
    spec = f"{users}:shallow"
    features = network_features(NetworkSource(spec, "3", (2, 4), source.state, initial_state=initial), spec)
    seen = seen_as_ridge(Observation(features, observation.weights, observation.knowledge))
    assert isinstance(seen.features, RidgeFeatures)
    assert seen.initial_rows is not None
    torch.testing.assert_close(seen.initial_rows.block(0, 200), initial["1.weight"])
    torch.testing.assert_close(seen.features.rows.block(0, 200), source.state["1.weight"] + 0.05)
    halfway = torch.nn.functional.gelu(samples @ (source.state["1.weight"] + 0.05).T + source.state["1.bias"] + 0.05)
    torch.testing.assert_close(seen.ridge(samples), halfway, rtol=1e-4, atol=1e-5)
