from collections.abc import Mapping
from pathlib import Path

import pytest

from exhume.attacks.foundation.hyperparameters import OptionValue
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.registry import known_methods, method_names
from exhume.attacks.running.choice import choose
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.tangent.newton import KktAttack, NtkAttack
from exhume.errors import UsageError
from exhume_papers.studies.family import as_markdown, family

DOCS = Path(__file__).parents[3] / "docs"


def chosen(name: str, options: Mapping[str, OptionValue], network: bool = False) -> AnyMethod:
    return choose(AttackSettings(name, options), lambda method: Outline(d=4, network=network))


def test_every_method_has_its_line_of_the_family_its_needs_and_its_page() -> None:
    assert tuple(member.name for member in family()) == method_names()
    for method in known_methods():
        assert method.needs.endswith(".")
        assert (DOCS / method.page).exists()
        assert "iterations" in method.hyperparameters()


def test_the_documentation_has_the_table_of_the_family() -> None:
    assert as_markdown() in (DOCS / "choosing-an-attack.md").read_text(encoding="utf-8")


def test_published_variants_of_the_attacks_on_all_layers_can_be_asked_for() -> None:
    published, ours = chosen("ntk", {"gradients_at": "trained"}), chosen("ntk", {"iterations": 7})
    assert isinstance(published, NtkAttack)
    assert isinstance(ours, NtkAttack)
    assert (published.back, ours.back, ours.iterations) == (0.0, 0.5, 7)
    margin, free = chosen("kkt", {"rule": "margin"}), chosen("kkt", {})
    assert isinstance(margin, KktAttack)
    assert isinstance(free, KktAttack)
    assert (margin.rule, free.rule) == ("margin", "free")


@pytest.mark.parametrize(
    ("name", "options", "network", "complaint"),
    [
        ("ntk", {"gradients_at": "nowhere"}, False, "expected --gradients-at out of halfway, trained, initial"),
        ("kkt", {"rule": "golden"}, False, "expected --rule out of free, margin"),
        ("auto", {"rule": "margin"}, False, "expected --rule with --method kkt, found auto"),
        ("kkt", {"gradients_at": "trained"}, False, "expected --gradients-at with --method ntk, found kkt"),
        ("ntk", {"gradients_at": "trained"}, True, "expected no --gradients-at with ntk on a network"),
        ("heavy-ball", {"exact": True}, False, "expected --exact with --method split-newton, found heavy-ball"),
        ("auto", {"step": 1.0}, True, "expected --step with --method heavy-ball, found auto, which is module-newton"),
        ("heavy-ball", {"momentum": "much"}, False, "expected --momentum: .* valid number.*, found 'much'"),
        ("heavy-ball", {"strength": "3"}, False, "expected hyperparameters of heavy-ball .step, momentum"),
        ("magic", {}, False, "expected a method out of auto, split-newton, .*, found 'magic'"),
        ("split-newton", {}, True, "expected a method for a network, found split-newton"),
    ],
)
def test_what_a_method_does_not_have_is_refused(
    name: str, options: dict[str, OptionValue], network: bool, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        chosen(name, options, network)


def test_any_hyperparameter_can_be_spelled_as_text() -> None:
    spelled = chosen("heavy-ball", {"momentum": "0.5", "iterations": "12", "step": "3"})
    assert spelled == chosen("heavy-ball", {"momentum": 0.5, "iterations": 12, "step": 3.0})
    assert chosen("split-newton", {"exact": "true"}) == chosen("split-newton", {"exact": True})
