import json
from pathlib import Path
from typing import Any

import pytest

from exhume.errors import ExhumeError, UsageError
from exhume_papers.sweeps.listing import Condition, differences, group, list_runs, select, with_settings


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


def test_the_folder_of_a_sweep_shows_its_runs_and_why_some_failed(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("")
    write_summary(tmp_path / "runs" / "a", json.dumps({"n": 3}))
    write_summary(tmp_path / "runs" / ".b.part", "{}")
    (tmp_path / "runs" / "c").mkdir()
    (tmp_path / "runs" / "c" / "failed.json").write_text(json.dumps({"reason": "no luck"}))
    found = list_runs(tmp_path)
    assert found == {"a": {"n": 3}, "c": {"outcome": "failed", "reason": "no luck"}}
    config = {"schema": 1, "data": {"name": "sphere"}, "model": {"recipe": {"steps": 7}}, "defence": None}
    (tmp_path / "runs" / "a" / "config.json").write_text(json.dumps(config))
    assert with_settings(tmp_path, found)["a"] == {
        "status": "done",
        "defence": None,
        "n": 3,
        "data.name": "sphere",
        "model.recipe.steps": 7,
    }


RUNS: dict[str, dict[str, Any]] = {
    "a": {"outcome": "recovered", "ratio": 2.0, "error": 0.1, "told": True, "method": "x"},
    "b": {"outcome": "partial", "ratio": 2.0, "error": 0.3, "told": False, "method": "x"},
    "c": {"outcome": "recovered", "ratio": 10.0, "error": None, "method": "y"},
    "d": {"outcome": "failed"},
}


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        ([], "abcd"),
        (["outcome=recovered"], "ac"),
        (["outcome != recovered"], "bd"),
        (["ratio>2"], "c"),
        (["ratio>=2"], "abc"),
        (["ratio=2"], "ab"),
        (["ratio = 2.0", "error<0.2"], "a"),
        (["error<=0.3"], "ab"),
        (["told=true"], "a"),
        (["told=none"], "cd"),
        (["ratio<0"], ""),
    ],
)
def test_conditions_choose_runs(conditions: list[str], names: str) -> None:
    assert "".join(select(RUNS, [Condition.parse(text) for text in conditions])) == names


@pytest.mark.parametrize("text", ["", "outcome", "=3", "ratio>", "ratio>two", "a b=3"])
def test_a_condition_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected a condition like|expected a number after"):
        Condition.parse(text)


def test_a_key_that_no_run_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"expected a key out of error, method, .*, found 'eror'"):
        select(RUNS, [Condition.parse("eror<1")])
    with pytest.raises(UsageError, match="found 'eror'"):
        group(RUNS, ["ratio"], "eror")


def test_runs_are_compared_where_they_differ() -> None:
    assert differences({name: RUNS[name] for name in "ab"}) == {
        "outcome": ["recovered", "partial"],
        "error": [0.1, 0.3],
        "told": [True, False],
    }


def test_groups_have_mean_and_deviation_in_the_order_of_their_numbers() -> None:
    found = group(RUNS, ["ratio"], "error")
    assert [(one.agreed, one.count) for one in found] == [((2.0,), 2), ((10.0,), 1), ((None,), 1)]
    assert found[0].mean == pytest.approx(0.2)
    assert found[0].deviation == pytest.approx(0.2 / 2**0.5)
    assert (found[1].mean, found[1].deviation) == (None, None)
