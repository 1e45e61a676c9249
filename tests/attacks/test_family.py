from pathlib import Path
from typing import Any

import pytest
from exhume.attacks.choice import METHODS, choose_method

from exhume.attacks.family import FAMILY, as_markdown, composition
from exhume.attacks.tangent.newton import KktAttack, NtkAttack
from exhume.errors import UsageError

DOCUMENT = Path(__file__).parents[2] / "docs" / "choosing-an-attack.md"


def test_every_attack_of_the_family_can_be_chosen() -> None:
    names = [entry.name for entry in FAMILY]
    assert len(set(names)) == len(names)
    assert {entry.request["method"] for entry in FAMILY} <= set(METHODS)
    assert composition("ntk") is not None
    assert composition("auto") is None


def test_the_documentation_has_the_table_of_the_family() -> None:
    assert as_markdown() in DOCUMENT.read_text(encoding="utf-8")


def test_published_variants_of_the_attacks_on_all_layers_can_be_asked_for() -> None:
    published, ours = choose_method("ntk", gradients_at="trained"), choose_method("ntk", iterations=7)
    assert isinstance(published, NtkAttack)
    assert isinstance(ours, NtkAttack)
    assert (published.back, ours.back, ours.iterations) == (0.0, 0.5, 7)
    margin, free = choose_method("kkt", rule="margin"), choose_method("kkt")
    assert isinstance(margin, KktAttack)
    assert isinstance(free, KktAttack)
    assert (margin.rule, free.rule) == ("margin", "free")


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("ntk", {"gradients_at": "nowhere"}, "expected gradients at halfway, trained, initial"),
        ("kkt", {"rule": "golden"}, "expected a rule out of free, margin"),
        ("auto", {"rule": "margin"}, "expected --rule with --method kkt, found auto"),
        ("kkt", {"gradients_at": "trained"}, "expected --gradients-at with --method ntk, found kkt"),
        ("ntk", {"gradients_at": "trained", "network": True}, "expected no --gradients-at with a network"),
    ],
)
def test_variants_of_another_attack_are_refused(name: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        choose_method(name, **options)
