from dataclasses import replace

import pytest
import torch
from torch import nn

import exhume
from exhume.attacks.registry import known_methods
from exhume.attacks.replay.attack import Replay
from exhume.attacks.silent.attack import SilentUnits
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.errors import UsageError
from exhume.layer_states import changed
from exhume.observation import Knowledge
from exhume.report.recipes import NAMES, Drift, broken, check_recipes, recipes_section
from exhume.verdicts import OUTSIDE

SEEN = exhume.observe(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), initial="zero")
CHANGE = changed(torch.zeros(6, 5), torch.ones(6, 5), bias=True)
BREAKING = SplitNewton.broken_by(SEEN)


def test_what_was_told_stands_beside_what_was_measured() -> None:
    """Records that the weights are combinations of do not unsay that training broke the assumption."""
    for floor in (None, OUTSIDE / 2, 2 * OUTSIDE):
        assert recipes_section(["adam"], floor, None, False, BREAKING)["broken"] == ["Adam, AdamW, RMSprop"]
        assert recipes_section(["sgd"], floor, None, False, BREAKING)["broken"] == []


def test_weight_decay_is_exact_only_for_a_head_that_began_at_zero() -> None:
    assert broken(["weight-decay"], BREAKING) == []
    breaking = SplitNewton.broken_by(replace(SEEN, knowledge=Knowledge(initial="known")))
    assert broken(["weight-decay"], breaking) == ["weight decay from a start that is not zero"]
    for zero, judged in ((True, "yes"), (False, "partly")):
        lines = {line["name"]: line["judged"] for line in recipes_section([], None, None, zero, ())["lines"]}
        assert lines["weight-decay"] == judged


def test_the_section_ticks_what_was_told_and_says_what_was_measured() -> None:
    section = recipes_section(["sgd"], 1e-9, Drift(0.5, "these records", sure=True), False, ())
    assert [line["name"] for line in section["lines"] if line["told"]] == ["sgd"]
    assert "a share of 1e-9" in section["measured"][0]
    assert "The assumption holds" in section["measured"][0]
    assert "far" in section["measured"][1]
    assert recipes_section([], None, None, False, ())["measured"] == []


@pytest.mark.parametrize(
    ("drift", "said"),
    [
        (
            Drift(0.0, "these records", sure=True),
            "The features of these records are what they were at the known start.",
        ),
        (
            Drift(0.1, "these records", sure=True),
            "these records moved by 0.1 of their size since the known start: little.",
        ),
        (
            Drift(0.1, "random inputs", sure=False),
            "random inputs moved by 0.1 of their size since the known start.",
        ),
        (
            Drift(0.8, "the candidates", sure=False),
            "the candidates moved by 0.8 of their size since the known start: far.",
        ),
    ],
)
def test_how_far_features_moved_is_said_of_the_inputs_it_was_measured_on(drift: Drift, said: str) -> None:
    (sentence,) = recipes_section([], None, drift, False, ())["measured"]
    assert sentence.startswith("The features of ")
    assert said in sentence


def test_each_method_says_what_breaks_it() -> None:
    assert all(method.broken_by(SEEN) <= set(NAMES) for method in known_methods())
    change, state = (replace(SEEN, layers=(layer,)) for layer in (CHANGE, replace(CHANGE, source="adam")))
    assert broken(["weight-decay", "augmentation", "dropout"], SilentUnits.broken_by(change)) == []
    assert broken(["adam"], SilentUnits.broken_by(change)) == ["Adam, AdamW, RMSprop"]
    assert broken(["adam"], SilentUnits.broken_by(state)) == []
    assert broken(["adam"], Replay.broken_by(change)) == []


def test_names_come_in_one_order_and_strangers_are_refused() -> None:
    assert check_recipes(["adam", "gd"]) == ("gd", "adam")
    assert check_recipes(NAMES) == NAMES
    with pytest.raises(UsageError, match="expected ways of training out of gd"):
        check_recipes(["magic"])
