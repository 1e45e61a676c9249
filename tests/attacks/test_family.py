from pathlib import Path

from exhume.attacks.choice import METHODS
from exhume.attacks.family import FAMILY, as_markdown, composition

DOCUMENT = Path(__file__).parents[2] / "docs" / "choosing-an-attack.md"


def test_every_attack_of_the_family_can_be_chosen() -> None:
    names = [entry.name for entry in FAMILY]
    assert len(set(names)) == len(names)
    assert set(names) <= set(METHODS)
    assert composition("ntk") is not None
    assert composition("auto") is None


def test_the_documentation_has_the_table_of_the_family() -> None:
    assert as_markdown() in DOCUMENT.read_text(encoding="utf-8")
