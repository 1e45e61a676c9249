from pathlib import Path

import pytest

from exhume.experiments.trials import Trials
from exhume.victims.recipe import Recipe


def test_a_trial_is_run_once_and_kept_for_the_next_time(tmp_path: Path) -> None:
    runs: list[int] = []

    def run() -> tuple[int, bool]:
        runs.append(1)
        return 3, True

    description = {"width": 5, "recipe": Recipe(momentum=0.5)}
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
