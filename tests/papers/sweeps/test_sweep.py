from typing import Any

import pytest

from exhume.errors import UsageError
from exhume.experiments.attack_request import AttackRequest
from exhume.requests.attack import AttackCommand
from exhume_papers.cli.known import KnownRequest
from exhume_papers.making.victim_request import VictimRequest
from exhume_papers.sweeps.sweep import ELSEWHERE, Sweep
from exhume_papers.sweeps.swept_attack import SweptAttackRequest
from exhume_papers.victims.glm import GlmConfig
from exhume_papers.victims.network_plans import FactoryConfig
from exhume_papers.victims.random_features import RandomFeaturesConfig

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
    assert run.method().name == "split-newton"
    assert run.attack_seed == 7


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
    assert run.victim.outline.network == (victim["kind"] != "two-layer")
    assert (run.victim.factory is not None) == isinstance(run.victim.model, FactoryConfig)


def test_a_sweep_knows_the_options_that_it_does_not_take() -> None:
    """All others are those of the commands: there is one model for both."""
    assert {"seed", "out"} == set(VictimRequest.model_fields) & set(ELSEWHERE["victim"])
    of_attack = AttackCommand.model_fields.keys() - ELSEWHERE["attack"].keys()
    assert of_attack == {*AttackRequest.model_fields, "seed"}
    assert SweptAttackRequest.model_fields.keys() - AttackRequest.model_fields.keys() == {"seed", "missing"}
    assert SweptAttackRequest.model_fields["missing"].default == KnownRequest.model_fields["missing"].default


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
        (
            {},
            {"method": "informed", "missing": 3},
            r"attack 1: expected the number of a sample from 0 to 2 .*, found 3",
        ),
        ({}, {"missing": 0}, r"attack 1: expected missing with method informed and without known, found method auto"),
        ({}, {"method": "informed", "known": "x", "missing": 0}, r"attack 1: expected missing .*, found known"),
        ({}, {"known": "x"}, r"attack 1: expected --known with --method informed, found auto"),
        ({}, {"prior": "image"}, r"attack 1: expected an observation of images for --prior image"),
        ({}, {"prior": "video"}, r"attack 1: expected a prior out of none, image, found 'video'"),
        ({}, {"spectrum": "x"}, r"attack 1: expected --spectrum with --prior image"),
        ({}, {"pool": 0}, r"attack 1, pool: expected pool to be greater than or equal to 1, found 0"),
        ({}, {"pool": "2"}, r"attack 1, pool: expected pool to be a valid integer, found '2'"),
        ({}, {"seed": [0, -1]}, r"attack 1, seed: expected seed to be greater than or equal to 0, found -1"),
        ({}, {"subspace": "first-layer"}, r"attack 1: expected an observation that knows the initial first layer"),
        ({}, {"method": "module-newton"}, r"attack 1: expected a method for features of random rows"),
        ({}, {"held_out": 1.5}, r"attack 1: expected a held-out fraction from 0 to below 1, found 1.5"),
        ({}, {"model": "a:b"}, r"attack 1, model: expected no model here, found 'a:b'; leave it out: the kind of"),
        ({}, {"seeds": 2}, r"attack 1, seeds: expected no seeds here, found 2; .* seed = \[0, 1\]"),
        ({"seed": 3}, {}, r"victim 1, seed: expected no seed here, found 3; leave it out: .* seeds = \[3\]"),
        ({"out": "a"}, {}, r"victim 1, out: expected no out here, found 'a'"),
        ({"kind": "glm"}, {}, r"victim 1, ratio: expected the settings data, .*, loss, penalty, found 'ratio'"),
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
    with pytest.raises(UsageError, match=r"^attack 1: expected --exact with --method split-newton, found auto"):
        Sweep(victims=victims, attacks=({"method": "auto", "exact": True},)).plan()


def test_a_victim_whose_first_layer_is_known_is_attacked_with_that_knowledge() -> None:
    victim = FACES | {"kind": "two-layer", "ratio": 4, "knows_first_layer": True}
    runs = Sweep(victims=(victim,), attacks=({}, {"method": "split-newton"})).plan().runs
    assert [run.method().name for run in runs] == ["subspace", "split-newton"]


GLM = {"kind": "glm", "data": "sphere", "dim": 10, "samples": 3, "loss": "square"}


def test_a_generalised_linear_model_is_a_victim_like_others() -> None:
    run = Sweep(victims=(GLM | {"penalty": 0.5},), seeds=(7,)).plan().runs[0]
    assert run.victim.model == GlmConfig(loss="square", penalty=0.5, seed=7)
    assert (run.victim.name, run.victim.defence) == ("glm", "")


@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ({"loss": "logistic"}, r"victim 1: expected labels -1 and \+1 for the logistic loss, found others"),
        ({"penalty": 0.0}, r"victim 1: expected penalty to be greater than 0, found 0.0"),
        ({"defence": "int8"}, r"victim 1, defence: expected the settings .*, found 'defence'"),
    ],
)
def test_a_generalised_linear_model_that_cannot_be_fitted_is_refused(victim: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=rf"^{words}"):
        Sweep(victims=(GLM | victim,)).plan()


@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ({"kind": "resnet", "width": 2}, "expected a method for a network, found informed"),
        ({"kind": "two-layer", "width": 9, "outputs": 2, "loss": "cross-entropy"}, "expected one output"),
    ],
)
def test_an_informed_adversary_of_a_model_that_he_cannot_invert_is_refused(victim: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=rf"^attack 1: {words}"):
        Sweep(victims=(FACES | victim,), attacks=({"method": "informed"},)).plan()


def test_an_attack_may_have_seeds_of_its_own_on_one_victim() -> None:
    runs = Sweep(victims=(SPHERE,), attacks=({"seed": [4, 5]},), seeds=(4,)).plan().runs
    assert [(run.seed, run.attack_seed, run.given["attack.seed"]) for run in runs] == [(4, 4, 4), (4, 5, 5)]
    assert runs[0].key == Sweep(victims=(SPHERE,), seeds=(4,)).plan().runs[0].key
    assert len({run.victim.key for run in runs}) == 1
