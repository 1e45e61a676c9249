"""The ablation switches off what there is, and takes up where it stopped."""

import json
from pathlib import Path
from typing import Any

import ablation
import mechanisms
import pytest
from ablation import ALL, Problem
from mechanisms import MECHANISMS

from exhume.attacks.single_layer.split_newton import SplitNewton


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_is_there_to_be_switched_off_and_comes_back(name: str) -> None:
    one = MECHANISMS[name]
    before = [getattr(owner, what) for owner, what, _ in one.neutral]
    with one.switched_off():
        assert all(getattr(owner, what) is instead for owner, what, instead in one.neutral)
    assert [getattr(owner, what) for owner, what, _ in one.neutral] == before
    assert all(getattr(SplitNewton(), what) != value for what, value in one.settings.items())
    assert one.neutral or one.settings


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for cases in ("SMALL", "CASES"):
        monkeypatch.setattr(ablation, cases, {"small": Problem(3, 8, 4.0)})


def ablated(path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr("sys.argv", ["ablation.py", "--out", str(path), "--seeds", "1", *options])
    ablation.main()


@pytest.mark.usefixtures("small")
def test_runs_are_kept_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.jsonl"
    ablated(path, monkeypatch, "--without", f"{ALL};selection: cleaning;signs")
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["without"] for line in lines] == [ALL, "selection: cleaning", "signs"]
    assert lines[0]["good"]
    assert "signs" in lines[0]["mattered"], "asked in every run"
    assert "selection: cleaning" not in lines[0]["mattered"], "there is no selection among three samples"
    assert lines[1]["passes"] == lines[0]["passes"] != lines[2]["passes"]
    capsys.readouterr()
    ablated(path, monkeypatch, "--without", f"{ALL};selection: cleaning;signs")
    assert len(path.read_text().splitlines()) == 3
    ablated(path, monkeypatch, "--page")
    shown = capsys.readouterr().out
    assert "| nothing | 1/1, " in shown
    assert shown.count("\n") == 5


def test_a_mechanism_of_one_regime_is_left_out_of_the_other() -> None:
    assert not mechanisms.MECHANISMS["momentum"].matters_where(dense=True)
    assert mechanisms.MECHANISMS["signs"].matters_where(dense=True)
