"""Gradients of any module as features: the change of all its parameters gives the samples away."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume import seeds
from exhume.attacks.running.loop import run_attack
from exhume.attacks.tangent.any_depth import ModuleTangentAttack, seen_by_gradients
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures
from exhume.metrics.errors import reconstruction_error
from exhume.metrics.floor import floor_of
from exhume.observation import Observation
from exhume_papers.victims.network import train_network
from exhume_papers.victims.network_plans import FactoryConfig
from exhume_papers.victims.recipe import DescentRecipe

NETS = """
from torch import nn

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 100), nn.Tanh(), nn.Linear(100, 1))
"""


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Dataset, Observation]:
    (tmp_path / "users_tangent_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    data = load(DataConfig.parse(name="faces", samples=2, side=5, seed=seeds.derive(0, "data"), dtype="float64"))
    recipe = DescentRecipe(until=1e-5, steps=500, step_size=0.01)  # measuring a step costs seconds
    config = FactoryConfig.parse(factory="users_tangent_nets:small", features_at="midpoint", recipe=recipe)
    return data, train_network(config, data).observation


def test_the_change_of_all_parameters_is_nearly_in_the_span_of_gradients(
    victim: tuple[Dataset, Observation],
) -> None:
    data, observation = victim
    seen = seen_by_gradients(observation)
    assert seen.weights.shape == (1, 25 * 100 + 100 + 100 + 1)
    assert floor_of(seen, data.inputs) < 5e-3
    assert floor_of(seen, data.inputs.flip(1)) > 0.1


@pytest.mark.slow
def test_the_solver_of_the_last_layer_finds_the_samples_by_gradients(victim: tuple[Dataset, Observation]) -> None:
    data, observation = victim
    method = ModuleTangentAttack(iterations=100, starts=1)
    found = run_attack(observation, method, dtype=torch.float64).reconstruction
    assert found.method == "ntk"
    assert reconstruction_error(data.inputs, found.candidates) < 0.1


def test_what_is_missing_is_said(victim: tuple[Dataset, Observation]) -> None:
    _, observation = victim
    with pytest.raises(UsageError, match="--features-at midpoint"):
        seen_by_gradients(replace(observation, head=None))
    assert isinstance(observation.features, ModuleFeatures)
    features = observation.features.part(torch.arange(5))
    with pytest.raises(UsageError, match="whole network"):
        seen_by_gradients(replace(observation, features=features, weights=observation.weights[:, :5], head=None))


def test_what_was_held_out_is_said_with_what_was_learned_of_it(victim: tuple[Dataset, Observation]) -> None:
    """Gradients halfway are those at weights whose change was held out: these were not fitted, but not unseen."""
    _, observation = victim
    attacked = run_attack(observation, ModuleTangentAttack(iterations=1, starts=1), dtype=torch.float64)
    found = attacked.reconstruction
    assert found.held_out is not None
    assert found.held_out.what == "changes of weights of all layers"
    assert "halfway between both ends of training" in found.held_out.looked_at
    assert len(found.held_out.places) == found.certificate.held_out_rows
    assert found.given["weights"] == "2,701 numbers of all layers"
    assert (found.given["initial"], found.given["body"]) == ("known", "all of them")
