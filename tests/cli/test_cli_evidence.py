"""What a page says of held-out weights is what the attack recorded, whatever the network was attacked as."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.files import read_json
from exhume.reconstruction import load_reconstruction, save_reconstruction

Command = Callable[..., subprocess.CompletedProcess[str]]
NETS = """
from torch import nn

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 300), nn.Tanh(), nn.Linear(300, 1, bias=False))
"""
VICTIMS = {
    "a network attacked as phi(Wx + b)": (
        "users_evidence_nets:plain",
        "auto",
        ("--model", "users_evidence_nets:plain"),
    ),
    "ntk": ("two-layer", "ntk", ()),
    "kkt": ("two-layer", "kkt", ()),
    "subspace": ("two-layer", "subspace", ()),
    "split-newton": ("two-layer", "split-newton", ()),
}


@pytest.mark.parametrize("name", VICTIMS)
def test_the_curve_of_a_page_is_what_the_attack_recorded(
    name: str, exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shapes_unchecked: None
) -> None:
    (tmp_path / "users_evidence_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    victim, method, code = VICTIMS[name]
    run, data = tmp_path / "run", ("--data", "faces", "--side", 5, "--samples", 2)
    own = () if victim != "two-layer" else ("--width", 200, "--knows-first-layer", "--activation", "tanh")
    trained = exhume("train", victim, *data, *own, "--steps", 300, "--out", run)
    assert trained.returncode == 0, trained.stderr
    attacked = exhume("attack", run, "--method", method, "--iterations", 40, *code)
    assert attacked.returncode == 0, attacked.stderr
    reported = exhume("report", run, *code)
    assert reported.returncode == 0, reported.stderr
    found, content = load_reconstruction(run / "reconstruction.safetensors"), read_json(run / "report.json")
    assert found.held_out is not None
    recorded = dict(found.held_out.along)
    assert len(recorded) > 3
    for frame in content["frames"][:-1]:
        assert frame["held_out_loss"] == recorded[frame["iteration"]]
    assert content["frames"][-1]["held_out_loss"] == content["attack"]["held_out_loss"] == found.held_out_loss
    last = recorded[max(recorded)]
    assert last == pytest.approx(found.held_out_loss, rel=0.5), "the curve ends in the loss of the verdict"
    assert content["attack"]["held_out"] == found.held_out.what
    page = (run / "report.html").read_text()
    assert "never used" not in page
    assert found.held_out.what in page
    if found.held_out.looked_at:
        assert found.held_out.looked_at in page


def test_a_run_without_a_record_has_a_page_without_a_curve(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    exhume("train", "rf", "--data", "faces", "--side", 5, "--samples", 2, "--ratio", 3, "--out", run)
    exhume("attack", run, "--method", "heavy-ball", "--samples", 2, "--iterations", 8)
    path = run / "reconstruction.safetensors"
    found = load_reconstruction(path)
    save_reconstruction(replace(found, held_out=None, given={}), path)
    assert exhume("report", run).returncode == 0
    frames = read_json(run / "report.json")["frames"]
    assert len(frames) > 3
    assert {frame["held_out_loss"] for frame in frames[:-1]} == {None}
    assert frames[-1]["held_out_loss"] == found.held_out_loss


def test_a_pool_shows_no_way_of_an_earlier_attack(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    exhume("train", "rf", "--data", "faces", "--side", 5, "--samples", 2, "--ratio", 3, "--out", run)
    exhume("attack", run, "--iterations", 5)
    assert (run / "snapshots.safetensors").exists()
    assert exhume("attack", run, "--iterations", 5, "--pool", 2).returncode == 0
    assert not (run / "snapshots.safetensors").exists()
    assert exhume("report", run).returncode == 0
    assert read_json(run / "report.json")["frames"] == []
