import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume_papers.sweeps.plan import SweepPlan, canonical, key_of
from exhume_papers.sweeps.sweep import Sweep

VICTIM = {"kind": "rf", "data": "sphere", "dim": 10, "samples": 3, "ratio": 4}


def key(victim: dict[str, Any] | None = None, attack: dict[str, Any] | None = None, seed: int = 0) -> str:
    plan = Sweep(victims=(VICTIM | (victim or {}),), attacks=(attack or {},), seeds=(seed,)).plan()
    assert len(plan.runs) == 1
    return plan.runs[0].key


def test_the_key_of_a_run_never_changes() -> None:
    """Folders of last year's sweep must be found again; where this has to change, raise KEY_SCHEMA."""
    assert key() == "160293b5ad5eba22"
    assert key({"activation": "tanh"}, {"method": "heavy-ball", "iterations": 20}, 7) == "4e8c2174d6f1cc81"


FACES = {"data": "faces", "samples": 2, "side": 5}
WIDE = {**FACES, "kind": "two-layer", "ratio": 4, "knows_first_layer": True}


@pytest.mark.parametrize(
    ("victim", "attack", "expected"),
    [
        (
            VICTIM | {"ridge": 0.1, "defence": "int8"},
            {"budget": "90s", "memory": "1G", "exact": True},
            "02e2fef5d496c437",
        ),
        (VICTIM | {"dtype": "float64"}, {"subspace": "moments", "samples": 3}, "31b4b4f4823ae687"),
        (VICTIM, {"method": "heavy-ball", "step": 2.0, "inactive_slope": 0.02}, "530a0b56bfdeb7d0"),
        (WIDE, {}, "a6ae65ce6a450eb9"),
        (WIDE, {"subspace": "first-layer", "held_out": 0.1}, "d85713a74d21d176"),
        (WIDE, {"method": "ntk", "start_seeds": 5}, "1120f353bc44b3b3"),
        (FACES | {"kind": "resnet", "width": 5}, {"iterations": 3, "dtype": "float64"}, "dd8e9c5714ca0e80"),
        (FACES | {"kind": "vit", "params": 100, "patch": 1}, {"products": "bfloat16"}, "f4494344010d6723"),
        (FACES | {"kind": "tests:model"}, {"device": "cpu"}, "2c7b2e869523da51"),
    ],
)
def test_the_key_of_no_kind_of_victim_or_attack_changes(
    victim: dict[str, Any], attack: dict[str, Any], expected: str
) -> None:
    assert Sweep(victims=(victim,), attacks=(attack,), seeds=(3,)).plan().runs[0].key == expected


@pytest.mark.parametrize(
    ("victim", "attack"),
    [
        ({"ratio": 4.0}, {}),
        ({"ratio": None, "params": 120}, {}),
        ({"data_dir": "/elsewhere"}, {}),
        ({"activation": "relu"}, {}),
        ({"defence": "none"}, {}),
        ({}, {"method": "split-newton"}),
        ({}, {"held_out": 0.05, "samples": "auto"}),
        ({}, {"prior": "none", "pool": 1}),
        ({}, {"seed": 0}),
    ],
)
def test_the_same_run_in_other_words_has_the_same_key(victim: dict[str, Any], attack: dict[str, Any]) -> None:
    assert key(victim, attack) == key()


@pytest.mark.parametrize(
    ("victim", "attack"),
    [
        ({"ratio": 4.1}, {}),
        ({"dim": 11}, {}),
        ({"activation": "tanh"}, {}),
        ({"noise": 0.5}, {}),
        ({"defence": "int8"}, {}),
        ({}, {"method": "heavy-ball"}),
        ({}, {"iterations": 5}),
        ({}, {"samples": 3}),
        ({}, {"budget": "90s"}),
        ({}, {"exact": True}),
        ({}, {"pool": 2}),
        ({}, {"seed": 1}),
        ({}, {"subspace": "moments"}),
        ({}, {"method": "informed"}),
    ],
)
def test_another_run_has_another_key(victim: dict[str, Any], attack: dict[str, Any]) -> None:
    assert key(victim, attack) != key()
    assert key(seed=1) != key()


def test_times_in_other_units_are_the_same_time() -> None:
    assert key(None, {"budget": "90s"}) == key(None, {"budget": "1.5m"}) == key(None, {"budget": 90.0})


SETTINGS = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)


@given(SETTINGS, st.randoms())
def test_the_order_of_settings_is_no_part_of_their_key(settings: dict[str, Any], random: Any) -> None:
    shuffled = list(settings.items())
    random.shuffle(shuffled)
    assert canonical(dict(shuffled)) == canonical(settings)
    assert key_of(dict(shuffled)) == key_of(settings)


@given(SETTINGS)
def test_nothing_is_lost_in_the_canonical_text(settings: dict[str, Any]) -> None:
    assert json.loads(canonical(settings)) == settings


def test_the_attacks_on_one_victim_share_it_and_a_plan_has_each_run_once() -> None:
    sweep = Sweep(victims=(VICTIM,), attacks=({"method": "split-newton"}, {"method": "heavy-ball"}), seeds=2)
    plan = sweep.plan()
    assert len({run.victim.key for run in plan.runs}) == 2
    assert len({run.key for run in plan.runs}) == 4
    assert (plan + plan).runs == plan.runs
    other = Sweep(victims=(VICTIM,), attacks=({"method": "auto"},), seeds=3).plan()
    joined = other + plan
    assert [run.key for run in joined.runs][:3] == [run.key for run in other.runs]
    assert len(joined.runs) == 5
    assert isinstance(joined, SweepPlan)


def test_the_options_of_a_plan_come_in_the_order_of_the_spec() -> None:
    plan = Sweep(victims=(VICTIM, VICTIM | {"ridge": 0.1}), attacks=({"method": "auto"}, {"samples": 3})).plan()
    assert plan.options == (
        "train.kind",
        "train.data",
        "train.dim",
        "train.samples",
        "train.ratio",
        "attack.method",
        "attack.samples",
        "train.ridge",
    )
