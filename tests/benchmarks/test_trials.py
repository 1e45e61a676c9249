import json
import math
from pathlib import Path

import pytest
from trials import Trials

from exhume.errors import ExhumeError
from exhume_papers.victims.recipe import DescentRecipe


def test_a_trial_is_run_once_and_kept_for_the_next_time(tmp_path: Path) -> None:
    runs: list[int] = []

    def run() -> tuple[int, bool]:
        runs.append(1)
        return 3, True

    description = {"width": 5, "recipe": DescentRecipe(momentum=0.5)}
    trials = Trials(tmp_path / "study" / "trials.jsonl")
    assert trials(description, run) == trials(dict(reversed(description.items())), run) == [3, True]
    assert Trials(trials.path)(description, run) == [3, True]
    assert len(runs) == 1
    trials({**description, "width": 6}, run)
    assert len(runs) == 2


def test_a_trial_that_fails_is_not_kept(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError

    trials = Trials(tmp_path / "trials.jsonl")
    with pytest.raises(RuntimeError):
        trials({"a": 1}, fail)
    assert trials({"a": 1}, lambda: 2) == 2


def test_half_a_line_of_a_killed_process_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    Trials(path)({"a": 1}, lambda: 2)
    whole = path.read_text()
    path.write_text(whole + '{"trial": "{\\"a')
    again = Trials(path)
    assert path.read_text() == whole
    assert again({"a": 1}, lambda: pytest.fail("it is kept")) == 2
    assert again({"a": 5}, lambda: 6) == 6
    assert Trials(path).done == again.done


def test_lines_have_a_schema_and_those_of_the_first_form_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    Trials(path)({"a": 1}, lambda: "\u2028")
    assert json.loads(path.read_text())["schema"] == 1
    path.write_text(path.read_text() + '{"trial": "{\\"a\\": 2}", "found": 3}\n')
    assert Trials(path)({"a": 2}, lambda: pytest.fail("it is kept")) == 3


@pytest.mark.parametrize(
    "line", ["{", "3", "[]", "{}", '{"trial": "a"}', '{"trial": "a", "found": NaN}', "", "\x00", "[" * 100_000]
)
def test_a_line_that_is_no_trial_is_one_line_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trials.jsonl"
    Trials(path)({"a": 1}, lambda: 2)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(
        ExhumeError, match=r"expected a trial in line 2 of .*trials\.jsonl, found something else: "
    ) as told:
        Trials(path)
    assert "\n" not in str(told.value)


def test_a_file_of_a_later_layout_or_of_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_text('{"schema": 2, "trial": "a", "found": 1}\n')
    with pytest.raises(ExhumeError, match=r"expected schema 1 in .*trials\.jsonl, found '2'"):
        Trials(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(ExhumeError, match="expected a readable text"):
        Trials(path)


def test_a_trial_that_found_no_number_is_one_line_and_not_kept(tmp_path: Path) -> None:
    trials = Trials(tmp_path / "trials.jsonl")
    with pytest.raises(ExhumeError, match="expected finite numbers from the trial"):
        trials({"a": 1}, lambda: {"loss": math.nan})
    assert not trials.path.exists()
    assert trials({"a": 1}, lambda: {"loss": 1.0}) == {"loss": 1.0}
