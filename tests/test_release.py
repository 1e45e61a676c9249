"""What a release says of itself is the same everywhere."""

import datetime
import re
import shutil
import subprocess
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


def test_the_matrix_prints_what_ran_what_failed_and_what_is_not_here(tmp_path: Path) -> None:
    """Its rows are true of the Pythons that it finds, whatever a name on the path leads to."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / ".ci/matrix", tmp_path / ".ci/matrix")
    release = 'case "$EXHUME_PYTHON" in *3.12) echo tried 3 12 2.13.0+cpu;; *) echo no wheel; exit 1;; esac'
    made = {
        "bin/python3.11": "exit 0",
        "bin/python3.12": "exit 0",
        "bin/python3.13": "exit 127",
        ".ci/release": release,
    }
    for name, line in made.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    for tool in ("dirname", "sed", "bash", "env"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    env = {"PATH": str(tmp_path / "bin")}
    done = subprocess.run([tmp_path / ".ci/matrix"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[2:] == [
        "| 3.11 | | failed |",
        "| 3.12 | 2.13.0 | the start page, from a wheel |",
        "| 3.13 | none | not tried |",
        "| 3.14 | none | not tried |",
    ]
    assert (done.returncode, done.stderr.strip()) == (1, "no wheel")


def test_the_release_holds_installing_and_the_start_page_to_three_minutes() -> None:
    script = (ROOT / ".ci/release").read_text(encoding="utf-8")
    before, _, after = script.partition('spend "$python" "$pages" "$page" .')
    assert 'spend "$work/env/bin/python" -m pip install' in before
    assert 'test -z "${EXHUME_PYTHON:-}" || rm "$work/spent"' in before, "another Python may have to download torch"
    assert "exit clock > 180 && core > 180" in after


def test_the_citation_names_both_papers_and_the_day_of_the_software() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [paper["title"] for paper in cited["references"]] == re.findall(
        r"^- \*([^*]+)\*", readme, flags=re.MULTILINE
    )
    assert isinstance(cited["date-released"], datetime.date)


def test_what_must_pass_includes_the_site_and_the_release() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert {"make site", ".ci/release"} <= set(script.splitlines())
