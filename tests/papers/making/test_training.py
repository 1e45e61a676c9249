"""Run folders of every kind of victim: whole, repeatable, resumable, and without training data where attacks look."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from exhume import seeds
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.run import RunFolder
from exhume.experiments.scoring import score
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.reconstruction import Certificate, Outcome, Reconstruction
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig
from exhume_papers.victims.random_features import RandomFeaturesConfig
from exhume_papers.victims.recipe import DescentRecipe, TrainingStopped
from exhume_papers.victims.two_layer import TwoLayerConfig
from exhume_papers.victims.victim_config import VictimConfig

FACES = DataConfig(name="faces", samples=3, side=5, seed=seeds.derive(0, "data"))
RECIPE = DescentRecipe(steps=30, until=1e-4)
SPEC = "users_training_nets:small"
USERS = """
from torch import nn

def small():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(36, 20), nn.Tanh(), nn.Linear(20, 1)
    )

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        import random
        self.scale = random.random()
        self.fc = nn.Linear(25, 1)

    def forward(self, images):
        return self.fc(self.scale * images.flatten(1))
"""
CONFIGS: dict[str, VictimConfig] = {
    "rf": RandomFeaturesConfig(params=150),
    "two-layer": TwoLayerConfig(width=150, recipe=RECIPE),
    "resnet": ResNetConfig(channels=6, kernel=6, blocks=1, recipe=RECIPE),
    "vit": VisionTransformerConfig(embedding=20, patch=5, depth=1, recipe=RECIPE),
    SPEC: FactoryConfig(factory=SPEC, recipe=RECIPE),
}
NETWORKS = [name for name in CONFIGS if name != "rf"]


@pytest.fixture(autouse=True)
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "users_training_nets.py").write_text(USERS)
    monkeypatch.chdir(tmp_path / "code")
    yield
    sys.modules.pop("users_training_nets", None)


def train(out: Path, name: str, **more: Any) -> dict[str, Any]:
    return train_run(out, FACES, CONFIGS[name], load(FACES), **more)


def allowed(name: str) -> str | None:
    return name if ":" in name else None


def attack_readable(run: Path) -> list[Path]:
    return [path for path in run.iterdir() if path.name in ("observation.safetensors", "features.safetensors")]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_run_folder_of_every_victim_loads_and_tells_its_numbers(tmp_path: Path, name: str) -> None:
    summary = train(tmp_path / "run", name)
    run = RunFolder.existing(tmp_path / "run")
    assert run.summary() == summary
    observation, truth = run.observation(allowed(name)), run.truth()
    n, d = truth.inputs.shape
    assert (summary["victim"], summary["p"], summary["d"], summary["n"]) == (name, observation.p, d, n)
    assert summary["ratio"] == observation.p / (d * n)
    assert summary["activation"] in ("relu", "gelu", None)
    assert summary["loss_function"] == "square"
    assert summary["training_loss"] <= 1e-2
    assert observation.knowledge.initial == ("zero" if name == "rf" else "known")
    assert (observation.knowledge.samples, observation.knowledge.norm) == (3, 5.0)
    assert isinstance(observation.features, RidgeFeatures if name in ("rf", "two-layer") else ModuleFeatures)
    assert (truth.coefficients is None) == (name != "rf")
    assert torch.equal(truth.inputs, load(FACES).inputs)
    assert json.loads((run.path / "config.json").read_text())["victim"] == name
    assert {path.name for path in tmp_path.iterdir()} == {"run", "code"}, "nothing hidden is left"


@pytest.mark.parametrize("name", CONFIGS)
def test_no_file_that_an_attack_reads_holds_training_data_or_the_way_to_it(tmp_path: Path, name: str) -> None:
    train(tmp_path / "run", name)
    truth = RunFolder(tmp_path / "run").truth()
    files = attack_readable(tmp_path / "run")
    assert len(files) == (2 if name == "two-layer" else 1)
    for file in files:
        content = file.read_bytes()
        assert str(FACES.seed).encode() not in content
        assert b"faces" not in content
        for row in truth.inputs:
            assert row.numpy().tobytes() not in content
            assert row[:4].numpy().tobytes() not in content


@pytest.mark.parametrize("name", NETWORKS)
def test_the_floor_is_the_projected_loss_at_the_truth(tmp_path: Path, name: str) -> None:
    summary = train(tmp_path / "run", name)
    run = RunFolder(tmp_path / "run")
    observation = run.observation(allowed(name))
    assert 1e-12 < summary["floor"] < 0.3
    assert summary["floor"] == pytest.approx(naive_floor(observation.features, observation.weights, run), rel=1e-3)


def naive_floor(features: RidgeFeatures | ModuleFeatures, weights: Tensor, run: RunFolder) -> float:
    seen, wanted = features(run.truth().inputs).double().T, weights.double().T
    left = wanted - seen @ torch.linalg.lstsq(seen, wanted).solution
    return float(left.square().sum() / wanted.square().sum())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_configuration_trains_the_same_run_again(tmp_path: Path, name: str) -> None:
    train(tmp_path / "a", name)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    data = DataConfig.model_validate(config["data"])
    model = type(CONFIGS[name]).model_validate(config["model"])
    assert model == CONFIGS[name]
    train_run(tmp_path / "b", data, model, load(data))
    for file in ("observation.safetensors", "truth.safetensors", "config.json", "summary.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.fixture(autouse=True)
def a_key_that_is_heard() -> Iterator[None]:
    """Ctrl-C as in a terminal: a process that was started in the background may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c_at(step: int) -> Any:
    return lambda steps, loss: os.kill(os.getpid(), signal.SIGINT) if steps == step else None


@pytest.mark.parametrize("name", NETWORKS)
def test_ctrl_c_leaves_a_checkpoint_and_the_same_call_ends_as_if_nothing_had_been(tmp_path: Path, name: str) -> None:
    train(tmp_path / "calm", name)
    with pytest.raises(TrainingStopped, match=r"interrupted at loss .* after 4 steps"):
        train(tmp_path / "run", name, progress=ctrl_c_at(4))
    assert not (tmp_path / "run").exists()
    assert (tmp_path / ".run.training.safetensors").exists()
    seen: list[int] = []
    train(tmp_path / "run", name, progress=lambda steps, loss: seen.append(steps))
    assert min(seen) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"run", "calm", "code"}
    for file in (tmp_path / "run").iterdir():
        assert file.read_bytes() == (tmp_path / "calm" / file.name).read_bytes()


def test_ctrl_c_before_the_first_step_acts_at_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: Any) -> float:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        raise AssertionError("the key was not heard")

    monkeypatch.setattr("exhume_papers.victims.span_iterates.largest_eigenvalue", pressed)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", "two-layer")
    assert [path.name for path in tmp_path.iterdir() if path.name != "code"] == []


def test_ctrl_c_while_the_features_are_written_loses_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "calm", "two-layer")

    def pressed(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("exhume_papers.victims.two_layer.write_rows", pressed)
        with pytest.raises(TrainingStopped, match="before the run folder was whole"):
            train(tmp_path / "run", "two-layer")
    assert {path.name for path in tmp_path.iterdir()} == {"calm", "code", ".run.training.safetensors"}
    seen: list[int] = []
    summary = train(tmp_path / "run", "two-layer", progress=lambda steps, loss: seen.append(steps))
    assert seen == [summary["steps"]], "training was over, and is not done again"
    for file in (tmp_path / "run").iterdir():
        assert file.read_bytes() == (tmp_path / "calm" / file.name).read_bytes()


def test_an_interrupted_training_writes_no_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "exhume_papers.victims.two_layer.write_rows", lambda *_: pytest.fail("features of half a training")
    )
    with pytest.raises(TrainingStopped, match="after 4 steps"):
        train(tmp_path / "run", "two-layer", progress=ctrl_c_at(4))


def test_a_checkpoint_of_another_training_is_not_continued(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train(tmp_path / "run", "two-layer", progress=ctrl_c_at(4))
    other = TwoLayerConfig(width=150, recipe=RECIPE, seed=1)
    with pytest.raises(ExhumeError, match=r"checkpoint of this training at .*\.run\.training\.safetensors, found"):
        train_run(tmp_path / "run", FACES, other, load(FACES))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", NETWORKS)
def test_features_at_the_midpoint_fit_better_and_the_attacker_is_told_that_he_knows_more(
    tmp_path: Path, name: str
) -> None:
    config = CONFIGS[name].model_copy(update={"features_at": "midpoint"})
    summary = train_run(tmp_path / "run", FACES, config, load(FACES))
    observation = RunFolder(tmp_path / "run").observation(allowed(name))
    assert observation.knowledge.initial_body
    trained = train(tmp_path / "trained", name)
    assert summary["floor"] < trained["floor"] / 2


def test_adam_has_a_midpoint_too(tmp_path: Path) -> None:
    recipe = DescentRecipe(method="adam", steps=5)
    config = TwoLayerConfig(width=30, recipe=recipe, features_at="midpoint")
    train_run(tmp_path / "run", FACES, config, load(FACES))
    at_the_end = TwoLayerConfig(width=30, recipe=recipe)
    train_run(tmp_path / "end", FACES, at_the_end, load(FACES))
    rows = [_rows(tmp_path / name) for name in ("run", "end")]
    assert float((rows[0] - rows[1]).abs().max()) == pytest.approx(5 * 1e-3 / 2, rel=0.2)


def _rows(run: Path) -> Tensor:
    features = RunFolder(run).observation().features
    assert isinstance(features, RidgeFeatures)
    return features.rows.block(0, features.p)


@pytest.mark.parametrize("name", ["two-layer", "resnet", SPEC])
def test_what_is_known_of_the_start_decides_what_the_weights_are(tmp_path: Path, name: str) -> None:
    weights = {}
    for initial in ("known", "distribution"):
        config = CONFIGS[name].model_copy(update={"initial": initial})
        summary = train_run(tmp_path / initial, FACES, config, load(FACES))
        observation = RunFolder(tmp_path / initial).observation(allowed(name))
        assert (observation.knowledge.initial, summary["initial"]) == (initial, initial)
        weights[initial] = observation.weights
    assert float((weights["distribution"] - weights["known"]).norm()) > 0.1
    zero = CONFIGS[name].model_copy(update={"initial": "zero", "zero_head": True})
    train_run(tmp_path / "zero", FACES, zero, load(FACES))
    assert RunFolder(tmp_path / "zero").observation(allowed(name)).knowledge.initial == "zero"


@pytest.mark.parametrize("name", CONFIGS)
def test_defences_change_what_is_published_and_nothing_else_is(tmp_path: Path, name: str) -> None:
    plain = train(tmp_path / "plain", name)
    summary = train(tmp_path / "run", name, defence="prune50+int8")
    assert summary["defence"] == "prune50+int8"
    assert abs(summary["p"] - plain["p"] / 2) <= 1
    assert summary["floor"] > 1e-6, "rounded weights are no combination of features"
    run = RunFolder(tmp_path / "run")
    observation = run.observation(allowed(name))
    assert observation.p == summary["p"]
    assert json.loads((run.path / "config.json").read_text())["defence"] == "prune50+int8"
    undefended = RunFolder(tmp_path / "plain").observation(allowed(name)).weights
    kept = undefended.flatten()[:4].numpy().tobytes()
    assert all(kept not in file.read_bytes() for file in attack_readable(run.path))


def test_a_defence_that_does_not_exist_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a defence such as"):
        train(tmp_path / "run", "two-layer", defence="armour", progress=lambda *_: pytest.fail("trained"))


def test_a_factory_that_builds_another_network_each_time_is_refused(tmp_path: Path) -> None:
    config = FactoryConfig(factory="users_training_nets:Odd", recipe=RECIPE)
    with pytest.raises(UsageError, match=r"users_training_nets:Odd to build the same network again"):
        train_run(tmp_path / "run", FACES, config, load(FACES))
    assert not (tmp_path / "run").exists()


def test_dropout_is_told_of(tmp_path: Path) -> None:
    assert train(tmp_path / "run", SPEC)["note"] == "evaluation mode: dropout is switched off in 2"


def test_networks_larger_than_the_memory_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match=r"expected weights that fit .* found p = 1,000,000,000,000"):
        train_run(tmp_path / "run", FACES, TwoLayerConfig(width=10**12), load(FACES))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "directions"), [("resnet", True), ("vit", False)])
def test_networks_are_scored_by_their_features(tmp_path: Path, name: str, directions: bool) -> None:
    """A residual network without biases is homogeneous: its weights cannot tell a norm from a coefficient."""
    train(tmp_path / "run", name)
    run = RunFolder(tmp_path / "run")
    truth, features = run.truth(), run.observation().features
    found = Reconstruction(
        candidates=3 * truth.inputs[[1, 0]],
        coefficients=torch.ones(2, 1),
        method="by hand",
        certificate=Certificate(Outcome.PARTIAL, None, 0, ()),
        loss=0.0,
        iterations=0,
        passes=0.0,
        seconds=0.0,
        peak_memory_mb=0.0,
        seed=0,
    )
    scores = score(truth, found, features)
    assert scores.directions_only == directions
    of_samples, of_candidates = features(truth.inputs).double(), features(found.candidates).double()
    fitted = torch.linalg.lstsq(of_candidates.T, of_samples.T).solution
    expected = (of_samples.T - of_candidates.T @ fitted).norm(dim=0).mean() / features.p**0.5
    assert scores.evaluation.span_residual == pytest.approx(float(expected), rel=1e-4)
    assert scores.evaluation.recovered_fraction == pytest.approx(2 / 3 if directions else 0)
    exact = score(truth, replace(found, candidates=truth.inputs, coefficients=torch.ones(3, 1)), features)
    assert exact.evaluation.error < 1e-6
