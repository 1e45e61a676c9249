import inspect
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli.attack import attack
from exhume.data.config import DataConfig
from exhume.experiments.run import RunFolder
from exhume.report.commands import commands, data_name
from exhume_papers.cli.train import factory, random_features, resnet, two_layer, vision_transformer
from exhume_papers.making.training import VictimConfig, victim_name
from exhume_papers.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig
from exhume_papers.victims.privacy import Privacy
from exhume_papers.victims.random_features import RandomFeaturesConfig
from exhume_papers.victims.recipe import Recipe
from exhume_papers.victims.two_layer import TwoLayerConfig


def _config(data: DataConfig, model: VictimConfig) -> dict[str, object]:
    return {"victim": victim_name(model), "data": data.model_dump(mode="json"), "model": model.model_dump(mode="json")}


def _flags(line: str) -> dict[str, str]:
    words = shlex.split(line)
    return {word: words[place + 1] for place, word in enumerate(words) if word.startswith("--") and word != "--reveal"}


def _known(command: Callable[..., None]) -> set[str]:
    return {f"--{name.replace('_', '-')}" for name in inspect.signature(command).parameters}


@pytest.mark.parametrize(
    "data",
    [
        DataConfig(name="faces", samples=3, standardise="channels", norm="keep", side=5, dtype="float64"),
        DataConfig(name="sphere", samples=3, dim=7, subspace=2, noise=0.5),
        DataConfig(name="cifar10", samples=3, per_class=(1, 2), data_dir=Path("/home/somebody/data")),
    ],
)
def test_every_flag_is_one_that_the_command_line_has(make_run: Callable[..., RunFolder], data: DataConfig) -> None:
    model = RandomFeaturesConfig(params=60, bias=0.5, fit="ridge", ridge=0.1, step_size=2.0, features="file", seed=9)
    found = make_run().reconstruction()
    found = replace(found, settings={"samples": 3, "step_size": 4.0, "inactive_slope": 0.02, "held_out": 0.1})
    train, dig, *_ = commands("run", _config(data, model), found, reveal=False)
    assert set(_flags(train)) <= _known(random_features)
    assert set(_flags(dig)) <= _known(attack)
    assert "somebody" not in train


def test_the_commands_carry_what_was_not_default(make_run: Callable[..., RunFolder]) -> None:
    data = DataConfig(name="cifar10", samples=3, per_class=(1, 2))
    found = make_run().reconstruction()
    lines = commands("my run", _config(data, RandomFeaturesConfig(params=60, seed=9)), found, reveal=True)
    assert lines == [
        "exhume train rf --data cifar10 --classes frog,truck --per-class 1,2 --samples 3 --params 60 --activation relu "
        "--seed 9 --out 'my run'",
        "exhume attack 'my run' --method heavy-ball --samples 3 --seed 3",
        "exhume evaluate 'my run'",
        "exhume report 'my run' --reveal",
    ]


RECIPE = Recipe(method="sgd", momentum=0.5, weight_decay=0.1, batch_size=2, step_size=0.1, until=0.01, steps=7)


@pytest.mark.parametrize(
    ("model", "command"),
    [
        (TwoLayerConfig(width=9, loss="logistic", outputs=1, recipe=RECIPE, zero_head=True), two_layer),
        (ResNetConfig(channels=9, kernel=3, recipe=RECIPE, features_at="midpoint"), resnet),
        (VisionTransformerConfig(embedding=8, recipe=RECIPE, initial="distribution"), vision_transformer),
        (FactoryConfig(factory="my.nets:small", head="fc", input_shape=(3, 2, 2), recipe=RECIPE), factory),
    ],
)
def test_networks_have_their_commands_too(
    make_run: Callable[..., RunFolder], model: VictimConfig, command: Callable[..., None]
) -> None:
    config = _config(DataConfig(name="faces", samples=3), model) | {"defence": "prune50+int8"}
    lines = commands("run", config, make_run().reconstruction(), reveal=False)
    assert lines[0].startswith(f"exhume train {victim_name(model)} --data faces ")
    flags = _flags(lines[0])
    assert set(flags) <= _known(command)
    assert (flags["--method"], flags["--momentum"], flags["--steps"]) == ("sgd", "0.5", "7")
    assert flags["--defence"] == "prune50+int8"
    if isinstance(model, FactoryConfig):
        assert (flags["--head"], flags["--image-shape"]) == ("fc", "3,2,2")
        assert all("--model my.nets:small" in line for line in lines[1:])


def test_privacy_is_asked_for_again(make_run: Callable[..., RunFolder]) -> None:
    found, data = make_run().reconstruction(), DataConfig(name="faces", samples=3)
    model = RandomFeaturesConfig(params=9, privacy=Privacy(noise=2.0, clip=3.0, steps=9))
    flags = _flags(commands("run", _config(data, model), found, reveal=False)[0])
    assert set(flags) <= _known(random_features)
    assert (flags["--noise-multiplier"], flags["--clip"], flags["--private-steps"]) == ("2.0", "3.0", "9")
    assert "--delta" not in flags
    network = TwoLayerConfig(width=9, privacy=Privacy(epsilon=1.5), initial="seed")
    flags = _flags(commands("run", _config(data, network), found, reveal=False)[0])
    assert set(flags) <= _known(two_layer)
    assert (flags["--epsilon"], flags["--initial"]) == ("1.5", "seed")


def test_a_model_that_was_not_trained_here_is_attacked_and_reported_only(make_run: Callable[..., RunFolder]) -> None:
    lines = commands("run", {}, make_run().reconstruction(), reveal=False)
    assert [line.split()[1] for line in lines] == ["attack", "report"]


@pytest.mark.parametrize("path", ["/home/somebody/photos", "~somebody/photos/", r"C:\Users\somebody\photos"])
def test_a_users_folder_is_named_without_the_way_to_it(path: str) -> None:
    assert data_name(path) == "photos"
