"""`exhume audit` from the command line: files and code of a user, verdicts as exit codes, and bad input."""

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

Command = Callable[..., subprocess.CompletedProcess[str]]
USERS = """
from torch import nn

def small():
    return nn.Sequential(nn.Linear(9, 150, bias=False), nn.ReLU(), nn.Linear(150, 1, bias=False))

def deep():
    return nn.Sequential(nn.Conv2d(1, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 1))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a head over known features, a two-layer model before and after training, a deeper one."""
    folder = tmp_path_factory.mktemp("user")
    stream = torch.Generator().manual_seed(0)
    data = torch.randn(4, 9, generator=stream)
    data *= 3 / data.norm(dim=1, keepdim=True)
    rows = torch.randn(150, 9, generator=stream) / 3
    labels = torch.tensor([1.0, -1.0])
    weights = (torch.linalg.pinv((data[:2] @ rows.T).clamp_min(0).double()) @ labels.double()).float()
    save_file({"fc.weight": weights[None], "<i>other</i>": torch.ones(3)}, folder / "w.safetensors")
    save_file({"V": rows}, folder / "V.safetensors")
    save_file({"inputs": data[:2], "labels": labels}, folder / "truth.safetensors")
    save_file({"inputs": data[2:]}, folder / "control.safetensors")
    start = 0.1 * torch.randn(1, 150, generator=stream)
    torch.save({"0.weight": rows, "2.weight": start}, folder / "start.pt")
    torch.save({"0.weight": rows, "2.weight": start + weights}, folder / "nets.pt")
    deep = nn.Sequential(nn.Conv2d(1, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 1))
    torch.save(deep.state_dict(), folder / "deep.pt")
    (folder / "users_audit_nets.py").write_text(USERS)
    return folder


@pytest.fixture(autouse=True)
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for path in made.iterdir():
        if path.is_file():
            os.link(path, tmp_path / path.name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("users_audit_nets", None)


def summary_of(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    assert len(done.stdout.splitlines()) == 1
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


FEATURES = ("w.safetensors", "--features", "V.safetensors", "--activation", "relu", "--head", "fc")


def test_a_head_over_known_features_is_audited_without_code(exhume: Command, here: Path) -> None:
    records = ("--truth", "truth.safetensors", "--control", "control.safetensors")
    done = exhume("audit", *FEATURES, *records, "--out", "o", "--json")
    found = summary_of(done)
    assert (found["verdict"], found["recovered"], found["control"]["recovered"]) == ("recovered", 2, 0)
    assert "room" not in done.stderr
    assert {path.name for path in (here / "o").iterdir()} == {"report.html", "report.json", "summary.json"}
    page = (here / "o" / "report.html").read_text(encoding="utf-8")
    assert "&lt;i&gt;other&lt;/i&gt;" in page
    assert "<i>" not in page
    assert str(here) not in page
    again = summary_of(exhume("report", "o", "--json"))
    assert (here / again["report"]).read_text(encoding="utf-8") == page


def test_a_verdict_can_fail_a_pipeline(exhume: Command) -> None:
    failed = exhume("audit", *FEATURES, "--fail-on", "partly-recovered", "--out", "o")
    assert failed.returncode == 1
    assert failed.stdout.splitlines()[1].startswith("Recovered: 2 training samples can be read from the weights")
    assert "failed on the verdict recovered (--fail-on partly-recovered)" in failed.stderr


def test_a_users_own_model_is_built_by_the_code_that_is_named(exhume: Command, here: Path) -> None:
    model = ("--model", "users_audit_nets:small", "--initial", "start.pt")
    done = exhume("audit", "nets.pt", *model, "--truth", "truth.safetensors", "--reveal", "--out", "o", "--json")
    found = summary_of(done)
    assert (found["verdict"], found["recovered"], found["p"]) == ("recovered", 2, 150)
    assert (here / "o" / "reconstruction.safetensors").is_file()
    content = json.loads((here / "o" / "report.json").read_text())
    assert content["knowledge"][2] == {"known": True, "what": "The weights of the last layer before training (known)"}
    assert content["commands"][0].startswith("exhume audit nets.pt --model users_audit_nets:small")
    assert content["artefact"]["kind"] == "PyTorch"


def test_any_network_is_audited_within_its_budget(exhume: Command, here: Path) -> None:
    shape = ("--image-shape", "1,3,3")
    model = ("--model", "users_audit_nets:deep", "--initial-seed", 3, *shape)
    found = summary_of(
        exhume("audit", "deep.pt", *model, "--budget", "0.3s", "--recipe", "adam", "--out", "o", "--json")
    )
    assert found["method"] == "module-newton"
    assert found["verdict"] in ("inconclusive", "partly_recovered", "recovered")
    assert "module-newton" in (here / "o" / "report.html").read_text(encoding="utf-8")


BAD = {
    "no way to the features": ("w.safetensors",),
    "both ways to the features": (*FEATURES, "--model", "users_audit_nets:small"),
    "no activation": ("w.safetensors", "--features", "V.safetensors"),
    "an unknown activation": ("w.safetensors", "--features", "V.safetensors", "--activation", "magic"),
    "two starts": ("nets.pt", "--model", "users_audit_nets:small", "--initial", "zero", "--initial-seed", "1"),
    "a seed without code": (*FEATURES, "--initial-seed", "1"),
    "control without truth": (*FEATURES, "--control", "control.safetensors"),
    "images without their number": (*FEATURES, "--truth", "faces"),
    "records in a file of another kind": (*FEATURES, "--truth", "start.pt"),
    "records of another size": (*FEATURES, "--truth", "faces", "--samples", "2"),
    "no such head": ("w.safetensors", "--features", "V.safetensors", "--activation", "relu", "--head", "no"),
    "no such factory": ("nets.pt", "--model", "users_audit_nets:none"),
    "an unknown defence": (*FEATURES, "--what-if", "magic"),
    "dp without labels": (*FEATURES, "--what-if", "dp"),
    "an unknown verdict": (*FEATURES, "--fail-on", "safe"),
    "an unknown recipe": (*FEATURES, "--recipe", "magic"),
    "no time": (*FEATURES, "--budget", "0s"),
    "no memory": (*FEATURES, "--memory", "1M"),
    "no memory for a network": ("nets.pt", "--model", "users_audit_nets:small", "--memory", "1M"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_requests_are_one_line_and_leave_nothing(exhume: Command, here: Path, name: str) -> None:
    before = set(here.iterdir())
    done = exhume("audit", *BAD[name], "--out", "o")
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("exhume: ")
    assert {path for path in here.iterdir() if path.name != "__pycache__"} == before


@pytest.mark.parametrize("name", ["nets.pt", "start.pt"])
def test_weights_of_another_model_are_refused(exhume: Command, name: str) -> None:
    done = exhume("audit", name, "--model", "users_audit_nets:deep", "--image-shape", "1,3,3", "--out", "o")
    assert (done.returncode, "to fit the model, found no 0.bias" in done.stderr) == (1, True)


def test_a_folder_that_is_there_is_not_overwritten(exhume: Command, here: Path) -> None:
    (here / "o").mkdir()
    assert exhume("audit", *FEATURES, "--out", "o").returncode == 2
    assert list((here / "o").iterdir()) == []


def sparse_weights(path: Path, gigabytes: int) -> None:
    """A file of that size on paper: a header, and a hole for the data."""
    numbers = gigabytes * 2**30 // 4 - 8
    header = json.dumps(
        {
            "body.weight": {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]},
            "fc.weight": {"dtype": "F32", "shape": [2, 4], "data_offsets": [4 * numbers, 4 * numbers + 32]},
        }
    ).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * numbers + 32)


def test_the_gauge_of_five_gigabytes_reads_the_header_only(exhume: Command, here: Path) -> None:
    sparse_weights(here / "big.safetensors", 5)
    began = time.process_time()
    found = summary_of(exhume("gauge", "big.safetensors", "--dim", 2, "--head", "fc", "--json"))
    assert time.process_time() - began < 1
    assert (found["p"], found["capacity"]) == (8, 4.0)
    assert found["blocks"]["fc"] == 8
    whole = exhume("gauge", "big.safetensors", "--dim", 3072)
    assert "1,342,177,272  body" in whole.stdout
    assert exhume("gauge", "big.safetensors", "--dim", 2, "--head", "no").returncode == 2


def test_the_gauge_says_what_each_layer_is_and_reads_checkpoints(exhume: Command, here: Path) -> None:
    state = torch.load(here / "deep.pt")
    torch.save({"model": state, "optimizer": {}}, here / "checkpoint.pt")
    save_file(state, here / "deep.safetensors")
    for name in ("deep.pt", "checkpoint.pt", "deep.safetensors"):
        told = exhume("gauge", name, "--dim", 9).stdout
        assert "20  0: convolution 1 -> 4, 2 x 2" in told
        assert "17  3: linear 16 -> 1, the last in the file" in told
        assert told.count("ast layer") == 0
        assert "A file of p = 37 parameters" in told
    head = summary_of(exhume("gauge", "deep.pt", "--dim", 9, "--head", "3", "--json"))
    assert (head["p"], head["blocks"]) == (17, {"0": 20, "3": 17})
    assert "Layer 3 of p = 17" in exhume("gauge", "deep.pt", "--dim", 9, "--head", "3").stdout


def test_a_gate_that_stops_a_model_without_records_stops_it_with_them(exhume: Command) -> None:
    """The wrong records, and the right ones at another scale: neither takes a confirmed recovery back."""
    rows = torch.randn(2, 9, generator=torch.Generator().manual_seed(5))
    save_file({"inputs": 3 * rows / rows.norm(dim=1, keepdim=True)}, "wrong.safetensors")
    codes = {}
    for name in ("none", "truth", "wrong"):
        records = () if name == "none" else ("--truth", f"{name}.safetensors")
        asked = ("--features", "V.safetensors", "--activation", "relu", "--head", "fc", "--fail-on", "partly-recovered")
        done = exhume("audit", "w.safetensors", *asked, *records, "--budget", "60s", "--out", f"out-{name}", "--json")
        codes[name] = done.returncode
        if name == "wrong":
            said = json.loads(done.stdout.splitlines()[-1])["sentence"]
            assert "Are these the records, prepared as in training?" in said
    assert codes == {"none": 1, "truth": 1, "wrong": 1}


def test_a_report_that_is_damaged_or_of_another_time_is_refused(exhume: Command, here: Path) -> None:
    (here / "report.json").write_text('{"schema": 1}')
    assert "expected a report of schema 2" in exhume("report", "report.json").stderr
    (here / "report.json").write_text('{"schema": 2, "attack": null, "results": []}')
    assert "found it damaged" in exhume("report", "report.json").stderr
    assert exhume("report", "report.json", "--reveal").returncode == 2
    assert not (here / "report.html").exists()
