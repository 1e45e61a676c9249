import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor

from exhume.attacks.running.start import _by_chance, drawn, find_start, scale_left, without_start
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.defences.kinds import parse_defences, publish
from exhume.errors import ExhumeError, UsageError
from exhume.observation import Observation, load_observation, save_observation
from exhume.start_rule import StartRule
from exhume_papers.victims.network import train_network
from exhume_papers.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, TwoLayerVictim, train_two_layer

FACES = load(DataConfig(name="faces", samples=3, side=5))
SEED = 4
RECIPE = DescentRecipe(until=1e-2)
OURS = "users_start_nets:small"
USERS = """
from torch import nn

def small():
    return nn.Sequential(nn.Conv2d(1, 40, 3), nn.Tanh(), nn.Flatten(), nn.Linear(360, 1))
"""


@pytest.fixture
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "users_start_nets.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("users_start_nets", None)


def two_layer(**fields: object) -> TwoLayerVictim:
    recipe = DescentRecipe(weight_decay=0.7, steps=60)
    config = TwoLayerConfig.parse(**{"width": 150, "seed": SEED, "initial": "seed", "recipe": recipe, **fields})
    return train_two_layer(config, FACES)


def test_the_seed_is_found_and_what_is_left_of_the_head_is_taken_off() -> None:
    victim = two_layer()
    start = find_start(victim.observation, 10)
    assert start.seed == SEED
    assert start.scale is not None
    assert 0.5 < victim.scale < 0.9
    assert start.scale == pytest.approx(victim.scale, rel=0.1)
    assert start.observation.knowledge.initial == "known"
    change = victim.head - start.scale * victim.initial_head
    torch.testing.assert_close(start.observation.weights, change)
    assert start.describe().startswith(f"start: seed {SEED} draws the initial head; {start.scale:.4f} of it is left")
    assert start.summary() == {"start_seed": SEED, "start_scale": start.scale}


def test_a_seed_that_is_not_among_those_tried_is_not_found_and_the_start_stays_noise() -> None:
    victim = two_layer()
    start = find_start(victim.observation, SEED)
    assert (start.seed, start.tried) == (None, SEED)
    assert start.observation.knowledge.initial == "distribution"
    assert torch.equal(start.observation.weights, victim.head)
    assert "none of the seeds below 4" in start.describe()


def test_heads_that_come_from_no_seed_are_not_found() -> None:
    victim = two_layer()
    stream = torch.Generator().manual_seed(1)
    strange = replace(victim.observation, weights=torch.randn(victim.head.shape, generator=stream))
    assert find_start(strange, 300).seed is None


@pytest.mark.parametrize("defence", ["int8", "prune60+bf16", "noise0.3", "obs50+prune20"])
def test_defences_do_not_hide_the_seed(defence: str, tmp_path: Path) -> None:
    victim = two_layer()
    published = publish(victim.observation, parse_defences(defence), inputs=FACES.inputs)
    save_observation(published, tmp_path / "observation.safetensors")
    seen = load_observation(tmp_path / "observation.safetensors")
    assert find_start(seen, 10).seed == SEED
    rule = published.start
    assert rule is not None
    whole = victim.initial_head if rule.kept is None else victim.initial_head[:, rule.kept]
    assert torch.equal(drawn(seen, SEED), whole)


def network_head(config: ResNetConfig | VisionTransformerConfig | FactoryConfig) -> tuple[Observation, Tensor]:
    victim = train_network(config, FACES)
    return victim.observation, victim.initial_head


@pytest.mark.usefixtures("users_module")
@pytest.mark.parametrize("name", ["resnet", "vit", "factory"])
def test_heads_of_networks_are_drawn_with_all_the_rest_of_the_network(name: str, tmp_path: Path) -> None:
    shared = {"seed": SEED, "initial": "seed", "recipe": RECIPE}
    observation, initial = {
        "resnet": lambda: network_head(ResNetConfig.parse(**shared, channels=5, kernel=6)),
        "vit": lambda: network_head(VisionTransformerConfig.parse(**shared, embedding=20, patch=5, depth=1)),
        "factory": lambda: network_head(FactoryConfig.parse(**shared, factory=OURS)),
    }[name]()
    save_observation(observation, tmp_path / "observation.safetensors")
    seen = load_observation(tmp_path / "observation.safetensors", OURS if name == "factory" else None)
    before = torch.random.get_rng_state()
    assert torch.equal(drawn(seen, SEED), initial)
    start = find_start(seen, 10)
    assert torch.equal(torch.random.get_rng_state(), before), "the random numbers of others are left alone"
    assert start.seed == SEED
    assert start.scale == pytest.approx(1, abs=0.2)


def test_observations_with_another_start_come_back_as_they_are() -> None:
    observation = two_layer(initial="known").observation
    start = find_start(observation)
    assert start.observation is observation
    assert start.seed is None


def test_the_scale_is_exact_where_training_moved_elsewhere() -> None:
    initial = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0]])
    change = torch.tensor([[0.0, 0.0, 5.0], [3.0, 0.0, 0.0]])
    assert scale_left(0.8 * initial + change, initial) == pytest.approx(0.8)


def test_a_start_that_says_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="differs from zero, found all of it zero"):
        scale_left(torch.ones(2, 3), torch.zeros(2, 3))


def test_a_rule_that_does_not_fit_is_one_line() -> None:
    observation = two_layer().observation
    for rule, message in ((StartRule("normal", 1, 7), "found .1, 7."), (StartRule("network", 1, 150), "built again")):
        with pytest.raises(ExhumeError, match=message):
            find_start(replace(observation, start=rule), 2)
    with pytest.raises(ExhumeError, match="how its head was drawn"):
        drawn(without_start(observation, drawn(observation, 0), 1.0), 0)
    with pytest.raises(UsageError, match="at least 1 seed"):
        find_start(observation, 0)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"kind": "uniform"}, None),
        ({"width": 0}, None),
        ({"outputs": 1.0}, None),
        ({}, torch.tensor([7])),
        ({}, torch.tensor([0.5])),
    ],
)
def test_a_damaged_rule_is_refused(change: dict[str, object], kept: Tensor | None) -> None:
    with pytest.raises(UsageError, match="expected"):
        StartRule.restore(StartRule("normal", 2, 7).describe() | change, kept)


@pytest.mark.parametrize("numbers", [2, 3, 30, 1_000, 1_000_000])
@pytest.mark.parametrize("cosine", [-1.0, -0.3, 0.0, 1e-3, 0.01, 0.1, 0.5, 0.999, 1.0])
def test_the_chance_of_a_cosine_is_the_tail_of_students_distribution(cosine: float, numbers: int) -> None:
    t = cosine * math.sqrt((numbers - 1) / max(1 - cosine**2, torch.finfo(torch.float64).eps))
    assert _by_chance(cosine, numbers) == pytest.approx(stats.t.sf(t, numbers - 1), rel=1e-12, abs=1e-290)
