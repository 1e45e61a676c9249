"""The commands on a page: those that made the run, from files of today and of version 0.1.0."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli.app import main
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.experiments.run import RunFolder
from exhume.report.commands import commands
from exhume.requests.attack import AttackCommand
from exhume.requests.command_options import RequestCommand
from exhume.requests.request import Request
from exhume_papers.making.victim_request import RandomFeaturesRequest, VictimRequest
from exhume_papers.victims.glm import GlmConfig
from exhume_papers.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig
from exhume_papers.victims.privacy import Privacy
from exhume_papers.victims.random_features import RandomFeaturesConfig
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig
from exhume_papers.victims.victim_config import VictimConfig


def _config(data: DataConfig, model: VictimConfig) -> dict[str, object]:
    """What a file keeps of a victim; version 0.1.0 kept no more."""
    return {"victim": model.name, "data": data.model_dump(mode="json"), "model": model.model_dump(mode="json")}


def _asked(line: str) -> Request:
    """What the program is asked for by a line."""
    got = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestCommand, "perform", lambda self, request, as_json: got.append(request))
        patch.setattr(sys, "argv", shlex.split(line))
        main()
    return got[0]


def _victim(line: str) -> VictimRequest:
    asked = _asked(line)
    assert isinstance(asked, VictimRequest)
    return asked


def _faces(**fields: object) -> DataConfig:
    return DataConfig.parse(name="faces", samples=3, side=5, seed=RandomFeaturesRequest(
        data="faces", samples=3, seed=9).data_config().seed, **fields)  # fmt: skip


def _attack(line: str) -> AttackCommand:
    asked = _asked(line)
    assert isinstance(asked, AttackCommand)
    return asked


@pytest.mark.parametrize(
    "data",
    [
        DataConfig(name="faces", samples=3, standardise="channels", norm="keep", side=5, dtype="float64"),
        DataConfig(name="sphere", samples=3, dim=7, subspace=2, noise=0.5),
        DataConfig(name="sphere", samples=3, dim=7, label_rule="sign"),
        DataConfig(name="cifar10", samples=3, per_class=(1, 2), data_dir=Path("/home/somebody/data")),
    ],
)
def test_data_of_before_are_asked_for_again(make_run: Callable[..., RunFolder], data: DataConfig) -> None:
    train, *_ = commands("run", _config(data, GlmConfig()), make_run().reconstruction(), reveal=False)
    told = _victim(train).data_config()
    hidden = {"data_dir": None if data.data_dir is None else Path("DIR"), "seed": told.seed}
    assert told == data.model_copy(update=hidden)
    assert "somebody" not in train


RECIPE = DescentRecipe(
    method="sgd", momentum=0.5, weight_decay=0.1, batch_size=2, step_size=0.1, until=0.01, steps=7, seed=9
)


@pytest.mark.parametrize(
    "model",
    [
        RandomFeaturesConfig(params=60, bias=0.5, fit="ridge", ridge=0.1, features="file", seed=9),
        RandomFeaturesConfig(params=60, fit="logistic", step_size=2.0, steps=8, activation="tanh", seed=9),
        RandomFeaturesConfig(params=9, privacy=Privacy(noise=2.0, clip=3.0, steps=9), seed=9),
        GlmConfig(loss="square", penalty=0.1, seed=9),
        TwoLayerConfig(width=9, loss="logistic", outputs=1, recipe=RECIPE, zero_head=True, seed=9),
        TwoLayerConfig(width=9, outputs=1, recipe=DescentRecipe(growing=True, seed=9), first_scale=0.1, seed=9,
                       knows_first_layer=True),
        TwoLayerConfig(
            width=9, outputs=1, privacy=Privacy(epsilon=1.5), initial="seed", recipe=DescentRecipe(seed=9), seed=9
        ),
        ResNetConfig(channels=9, outputs=1, kernel=3, recipe=RECIPE, features_at="midpoint", seed=9),
        VisionTransformerConfig(embedding=8, outputs=1, patch=1, recipe=RECIPE, initial="distribution", seed=9),
        FactoryConfig(factory="my.nets:small", head="fc", input_shape=(1, 5, 5), recipe=RECIPE, freeze=True, seed=9),
    ],
)  # fmt: skip
def test_a_victim_of_before_is_asked_for_again(make_run: Callable[..., RunFolder], model: VictimConfig) -> None:
    data, defence = _faces(), "" if isinstance(model, GlmConfig) else "prune50+int8"
    config = _config(data, model) | {"defence": defence or None}
    lines = commands("run", config, make_run().reconstruction(), reveal=False)
    asked = _victim(lines[0])
    assert asked.data_config() == data
    assert asked.config(load(data)) == model
    assert (asked.defences(), asked.out) == (defence, Path("run"))
    assert all(("--model my.nets:small" in line) == isinstance(model, FactoryConfig) for line in lines[1:])


def test_a_request_that_was_kept_is_asked_for_as_it_was(make_run: Callable[..., RunFolder]) -> None:
    asked = RandomFeaturesRequest(data="/home/me/photos", samples=3, ratio=2.5, seed=9, data_dir="/home/me")
    found = replace(make_run().reconstruction(), request={"method": "heavy-ball", "budget": "2m", "seed": 3})
    config = {"victim": "rf", "request": asked.kept()}
    assert commands("my run", config, found, reveal=True) == [
        "exhume train rf --data photos --samples 3 --data-dir DIR --seed 9 --ratio 2.5 --out 'my run'",
        "exhume attack 'my run' --method heavy-ball --budget 2m --seed 3",
        "exhume evaluate 'my run'",
        "exhume report 'my run' --reveal",
    ]


def test_an_attack_of_before_is_asked_for_by_what_its_settings_tell(make_run: Callable[..., RunFolder]) -> None:
    told = {"samples": 3, "step_size": 4.0, "inactive_slope": 0.02, "held_out": 0.1, "dtype": "float32", "other": 1}
    found = replace(make_run().reconstruction(), settings=told)
    asked = _attack(commands("run", {}, found, reveal=False)[0])
    expected = {"method": "heavy-ball", "samples": 3, "step": 4.0, "inactive_slope": 0.02, "held_out": 0.1, "seed": 3}
    assert asked.to_config() == {**expected, "run": "run"}


def test_a_prior_can_be_asked_for_by_its_own_name(make_run: Callable[..., RunFolder]) -> None:
    found = replace(make_run().reconstruction(), method="image-prior", settings={})
    asked = _attack(commands("run", {}, found, reveal=False)[0])
    assert (asked.method, asked.prior) == ("image-prior", "none")


def test_a_model_that_was_not_trained_here_is_attacked_and_reported_only(make_run: Callable[..., RunFolder]) -> None:
    lines = commands("run", {}, make_run().reconstruction(), reveal=False, factory="a.b:c")
    assert [line.split()[1] for line in lines] == ["attack", "report"]
    assert all(line.endswith("--model a.b:c") for line in lines)
