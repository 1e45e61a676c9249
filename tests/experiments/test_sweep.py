import inspect
from typing import Any

import pytest

from exhume.cli.attack import attack
from exhume.cli.train import random_features, resnet, two_layer, vision_transformer
from exhume.errors import UsageError
from exhume.experiments.attack_request import AttackRequest
from exhume.experiments.sweep import Sweep
from exhume.experiments.victim_request import KINDS, FactoryRequest
from exhume.victims.network_plans import FactoryConfig
from exhume.victims.random_features import RandomFeaturesConfig

SPHERE = {"kind": "rf", "data": "sphere", "dim": 10, "samples": 3, "ratio": 4}
FACES = {"data": "faces", "samples": 2, "side": 5}


def test_lists_span_the_grid_and_the_last_one_changes_fastest() -> None:
    victim = SPHERE | {"ratio": [1, 2], "activation": ["relu", "tanh"], "seeds": [5, 3]}
    plan = Sweep(victims=(victim, SPHERE), attacks=({"method": ["auto", "heavy-ball"]},)).plan()
    told = [(run.given["train.ratio"], run.given.get("train.activation"), run.seed) for run in plan.runs]
    assert told[:6] == [(1, "relu", 5), (1, "relu", 5), (1, "relu", 3), (1, "relu", 3), (1, "tanh", 5), (1, "tanh", 5)]
    assert told[-2:] == [(4, None, 0), (4, None, 0)]
    assert [run.attack.method for run in plan.runs[:2]] == ["auto", "heavy-ball"]
    assert len(plan.runs) == 2 * 2 * 2 * 2 + 2


def test_a_run_is_what_the_commands_would_make_of_the_same_options() -> None:
    run = Sweep(victims=(SPHERE | {"ridge": 0.5, "activation": "tanh"},), seeds=(7,)).plan().runs[0]
    assert run.victim.model == RandomFeaturesConfig(params=120, activation="tanh", fit="ridge", ridge=0.5, seed=7)
    assert (run.victim.data.samples, run.victim.data.dim) == (3, 10)
    prepared = run.attack.prepare(network=False, seed=7)
    assert prepared.method.name == "split-newton"
    assert prepared.settings.seed == 7


@pytest.mark.parametrize(
    ("victim", "weights"),
    [
        ({"kind": "two-layer", "ratio": 4}, {"width": 4 * 2 * 25}),
        ({"kind": "two-layer", "params": 70, "loss": "cross-entropy", "outputs": 2}, {"width": 35}),
        ({"kind": "resnet", "width": 5}, {"channels": 5}),
        ({"kind": "resnet", "params": 98}, {"channels": 2}),
        ({"kind": "vit", "params": 100, "patch": 1}, {"embedding": 4}),
        ({"kind": "tests:model"}, {"factory": "tests:model"}),
    ],
)
def test_networks_are_sized_as_on_the_command_line(victim: dict[str, Any], weights: dict[str, Any]) -> None:
    run = Sweep(victims=(FACES | victim,)).plan().runs[0]
    assert weights.items() <= run.victim.model.model_dump().items()
    assert run.work > 0
    assert run.victim.is_network == (victim["kind"] != "two-layer")
    assert (run.victim.factory is not None) == isinstance(run.victim.model, FactoryConfig)


COMMANDS = {"rf": random_features, "two-layer": two_layer, "resnet": resnet, "vit": vision_transformer}


@pytest.mark.parametrize("kind", KINDS)
def test_a_victim_has_the_options_of_its_command_with_their_defaults(kind: str) -> None:
    options = inspect.signature(COMMANDS[kind]).parameters
    asked = {name: option.default for name, option in options.items() if name not in ("out", "seed", "json")}
    fields = KINDS[kind].model_fields
    assert asked.keys() == fields.keys()
    for name, default in asked.items():
        expected = inspect.Parameter.empty if fields[name].is_required() else fields[name].default
        assert default == expected, name
    assert "factory" in FactoryRequest.model_fields


def test_the_options_of_an_attack_are_those_of_its_command_with_their_defaults() -> None:
    """Options of the command that a sweep does not take are refused there, not ignored."""
    options = inspect.signature(attack).parameters
    for name, field in AttackRequest.model_fields.items():
        assert options[name].default == field.default, name


@pytest.mark.parametrize(
    ("victim", "attack", "words"),
    [
        ({"kind": "fr"}, {}, r"victim 1, kind: expected a kind out of rf, .*, found 'fr'"),
        ({"kind": ["rf", 3]}, {}, r"victim 1, kind: .* found 3"),
        ({"ration": 4}, {}, r"victim 1, ration: expected the settings .*, found 'ration'"),
        ({"ratio": [1, "2"]}, {}, r"victim 1, ratio: expected ratio to be a valid number, found '2'"),
        ({"ratio": []}, {}, r"victim 1, ratio: expected at least one value in the list, found none"),
        ({"ratio": -1}, {}, r"victim 1: expected a positive --ratio, found -1"),
        ({"params": 5}, {}, r"victim 1: expected one of --ratio and --params, found both"),
        ({"samples": True}, {}, r"victim 1, samples: expected samples to be a valid integer, found True"),
        ({"dim": None}, {}, r"victim 1: expected the dimension of the sphere"),
        ({"activation": "swish"}, {}, r"victim 1: .*'swish'"),
        ({"defence": "prune200"}, {}, r"victim 1: expected percent to be less than 100"),
        ({"ridge": 0.1, "fit": "logistic"}, {}, r"victim 1: expected a ridge penalty"),
        ({"seeds": 0}, {}, r"victim 1, seeds: expected a number of seeds or a list .*, found 0"),
        ({"seeds": [0, -1]}, {}, r"victim 1, seeds: .* found \[0, -1\]"),
        ({"seeds": True}, {}, r"victim 1, seeds: .* found True"),
        ({"seeds": 10**9}, {}, r"victim 1, seeds: .* found 1000000000"),
        ({"data": "no/such/folder", "dim": None}, {}, r"victim 1: expected the data set .* found 'no/such/folder'"),
        ({"step-size": 1.0, "step_size": 1.0}, {}, r"victim 1: expected each option once"),
        ({"ratio": list(range(1, 400)), "bias": [0.0] * 400}, {}, r"victim 1: expected at most 100,000 combinations"),
        ({}, {"method": "newton"}, r"attack 1: expected a method out of .*, found 'newton'"),
        ({}, {"methods": "auto"}, r"attack 1, methods: expected the settings method, .*, found 'methods'"),
        ({}, {"method": "heavy-ball", "exact": True}, r"attack 1: expected --exact with --method split-newton"),
        ({}, {"method": "informed"}, r"attack 1: expected a method that needs no known samples in a sweep"),
        ({}, {"budget": "soon"}, r"attack 1: expected a time like 90s, 10m or 2h, found 'soon'"),
        ({}, {"samples": 0}, r"attack 1: expected --samples auto or a whole number from 1, found '0'"),
    ],
)
def test_a_wrong_entry_is_named_in_one_line(victim: dict[str, Any], attack: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=rf"^{words}") as refused:
        Sweep(victims=(SPHERE | victim,), attacks=(attack,)).plan()
    assert "\n" not in str(refused.value)


def test_an_attack_that_does_not_suit_one_of_the_victims_is_refused_before_anything_runs() -> None:
    victims = (SPHERE, FACES | {"kind": "resnet", "width": 2})
    with pytest.raises(UsageError, match=r"^attack 1: expected no --step"):
        Sweep(victims=victims, attacks=({"method": "auto", "exact": True},)).plan()


def test_a_victim_whose_first_layer_is_known_is_attacked_with_that_knowledge() -> None:
    victim = FACES | {"kind": "two-layer", "ratio": 4, "knows_first_layer": True}
    runs = Sweep(victims=(victim,), attacks=({}, {"method": "split-newton"})).plan().runs
    assert [run.prepare().method.name for run in runs] == ["subspace", "split-newton"]
