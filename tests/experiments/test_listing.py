import json
from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume.experiments.listing import list_runs


def write_summary(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(text)


def test_runs_are_listed_by_name_and_everything_else_is_passed_over(tmp_path: Path) -> None:
    for number, name in enumerate(["b", "a", ".c.1234abcd.tmp", "deeper/d"]):
        write_summary(tmp_path / name, json.dumps({"n": number}))
    (tmp_path / "not a run").mkdir()
    (tmp_path / "summary.json").write_text("{}")
    found = list_runs(tmp_path)
    assert list(found) == ["a", "b"]
    assert found == {"a": {"n": 1}, "b": {"n": 0}}


def test_a_folder_without_runs_has_none(tmp_path: Path) -> None:
    assert list_runs(tmp_path) == {}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match=r"expected a folder of runs at .*, found none"):
        list_runs(tmp_path / "runs")


def test_a_damaged_summary_is_named(tmp_path: Path) -> None:
    write_summary(tmp_path / "a", "{")
    with pytest.raises(ExhumeError, match=r"a/summary\.json"):
        list_runs(tmp_path)
