"""What a release says of itself is the same everywhere."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from exhume.version import VERSION

ROOT = Path(__file__).parents[1]


def test_the_version_is_the_same_in_every_place() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == VERSION
    newest = re.findall(r"^## (\S+),", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
    assert newest == VERSION
    for page in ("examples/workflows/release.yml", "docs/guides/pipeline.md"):
        tags = re.findall(r"v(\d+\.\d+\.\d+)", (ROOT / page).read_text(encoding="utf-8"))
        assert set(tags) == {VERSION}, page


def test_everything_that_an_extra_names_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    named = {re.split(r"[\[><=~ ]", name)[0].lower() for name in (*project["dependencies"], *extras)} - {"exhume"}
    assert named <= pinned, named - pinned


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_an_issue_form_is_complete(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    asked = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(asked) == len(set(asked)) > 0


def test_what_must_pass_includes_the_site_and_the_release() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert {"make site", ".ci/release"} <= set(script.splitlines())
