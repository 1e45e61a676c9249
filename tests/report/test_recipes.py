import pytest

from exhume.errors import UsageError
from exhume.report.recipes import NAMES, broken, check_recipes, recipes_section
from exhume.verdicts import OUTSIDE


def test_what_was_told_stands_beside_what_was_measured() -> None:
    """Records that the weights are combinations of do not unsay that training broke the assumption."""
    for floor in (None, OUTSIDE / 2, 2 * OUTSIDE):
        assert recipes_section(["adam"], floor, None, False)["broken"] == ["Adam, AdamW, RMSprop"]
        assert recipes_section(["sgd"], floor, None, False)["broken"] == []


def test_weight_decay_is_exact_only_for_a_head_that_began_at_zero() -> None:
    assert broken(["weight-decay"], zero=True) == []
    assert broken(["weight-decay"], zero=False) == ["weight decay from a start that is not zero"]
    for zero, judged in ((True, "yes"), (False, "partly")):
        lines = {line["name"]: line["judged"] for line in recipes_section([], None, None, zero)["lines"]}
        assert lines["weight-decay"] == judged


def test_the_section_ticks_what_was_told_and_says_what_was_measured() -> None:
    section = recipes_section(["sgd"], floor=1e-9, drift=0.5, zero=False)
    assert [line["name"] for line in section["lines"] if line["told"]] == ["sgd"]
    assert "a share of 1e-9" in section["measured"][0]
    assert "The assumption holds" in section["measured"][0]
    assert "far" in section["measured"][1]
    assert recipes_section([], None, 0.0, False)["measured"] == ["The features did not move in training."]
    assert recipes_section([], None, None, False)["measured"] == []


def test_names_come_in_one_order_and_strangers_are_refused() -> None:
    assert check_recipes(["adam", "gd"]) == ("gd", "adam")
    assert check_recipes(NAMES) == NAMES
    with pytest.raises(UsageError, match="expected ways of training out of gd"):
        check_recipes(["magic"])
