"""docs/architecture.md: what it names is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
FOLDERS = (ROOT, ROOT / "src", ROOT / "src" / "exhume")
PATH = re.compile(r"`([\w./]+(?:\.(?:py|toml|jinja|md)|/))`((?:\s\((?:`\w+`(?:, )?)+\))?)")


def place_of(path: str) -> Path | None:
    return next((folder / path for folder in FOLDERS if (folder / path).exists()), None)


def test_every_path_of_the_page_exists() -> None:
    named = [path for path, _ in PATH.findall(TEXT)]
    assert len(named) > 40
    assert [path for path in named if place_of(path) is None] == []


def test_every_name_behind_a_path_is_defined_there() -> None:
    pairs = [(path, name) for path, names in PATH.findall(TEXT) for name in re.findall(r"`(\w+)`", names)]
    assert len(pairs) > 8
    for path, name in pairs:
        place = place_of(path)
        assert place is not None
        defined = {getattr(node, "name", None) for node in ast.parse(place.read_text()).body}
        assert name in defined, (path, name)


def test_every_file_that_the_source_names_is_there() -> None:
    files = [path.relative_to(ROOT).as_posix() for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")]
    lost = [
        (path.name, named)
        for path in (ROOT / "src").rglob("*.py")
        for named in re.findall(r"`([\w/]+\.py)`", path.read_text())
        if not any(f"/{file}".endswith(f"/{named}") for file in files)
    ]
    assert lost == []


def test_every_folder_of_the_packages_is_on_the_page() -> None:
    for package in ("exhume", "exhume_papers"):
        for folder in sorted((ROOT / "src" / package).glob("*/__init__.py")):
            assert folder.parent.name in TEXT, folder.parent


def test_the_page_teaches_six_additions() -> None:
    titles = re.findall(r"^### (.*)$", TEXT, re.MULTILINE)
    assert titles == [
        "An activation",
        "A data set",
        "A victim",
        "An attack",
        "An option",
        "A section of the report",
    ]
