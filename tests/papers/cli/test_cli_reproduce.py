import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from exhume_papers.catalogue import registry
from exhume_papers.catalogue.thresholds import Panel, ThresholdFigure, sweeps_of

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of two tiny figures that share their runs, and one whose data are nowhere."""
    victim = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "params": [2, 12]}
    panel = Panel("sphere", sweeps_of([victim], [{"method": "heavy-ball", "iterations": 3}], 1))
    missing = Panel("none", sweeps_of([{"kind": "rf", "data": "no/such/folder", "samples": 2, "ratio": 1}], [{}], 1))
    figures = [
        ThresholdFigure("fig3", "first", "much", lambda scale: [panel]),
        ThresholdFigure("fig3-again", "second", "much", lambda scale: [panel]),
        ThresholdFigure("fig4", "third", "much", lambda scale: [missing]),
    ]
    monkeypatch.setattr(registry, "FIGURES", {figure.name: figure for figure in figures})


@pytest.mark.usefixtures("small")
def test_a_figure_by_name(exhume: Command, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    arguments = ("reproduce", "fig3", "--quick", "--engine", "here", "--out", tmp_path / "out", "--json")
    done = exhume(*arguments, "--page", page)
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert [(figure["figure"], figure["runs"], figure["done"]) for figure in last["figures"]] == [
        ("fig3", 2, 2),
        ("fig3-again", 2, 2),
    ]
    assert last["figures"][0]["command"] == "exhume reproduce --quick fig3"
    assert (tmp_path / "out" / "quick" / "fig3" / "fig3.png").is_file()
    assert len(list((tmp_path / "out" / "quick" / "sweep" / "runs").iterdir())) == 2, "figures share their runs"
    written = page.read_text()
    assert "### fig3\nFirst.\n" in written
    assert "- Published: much\n- Here:\n\n    - sphere, published attack: " in written
    again = exhume(*arguments)
    assert again.returncode == 0
    assert "2 runs, 2 of them before" in again.stderr


@pytest.mark.usefixtures("small")
def test_with_all_what_has_no_data_is_left_out_and_by_name_it_is_refused(
    exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exhume_papers.catalogue.checks.CHECKS", ())
    monkeypatch.setattr("exhume_papers.catalogue.checks.draw_laws", lambda *_: None)
    done = exhume("reproduce", "--all", "--quick", "--engine", "here", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fig4: not run: " in done.stderr
    refused = exhume("reproduce", "fig4", "--engine", "here", "--out", tmp_path)
    assert refused.returncode == 2
    assert "fig4: victim 1: expected the data set" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected names of figures"),
        (["fig3", "--all"], "expected names of figures"),
        (["fig3", "--quick", "--paper"], "expected one of --quick and --paper, found both"),
        (["fig99"], "expected a figure out of fig1-curve, "),
    ],
)
def test_a_wrong_request_is_one_line(exhume: Command, tmp_path: Path, arguments: list[str], words: str) -> None:
    done = exhume("reproduce", *arguments, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
