"""Printed commands are run: they give the same numbers as the run that they were printed for."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from all_commands import MODELS
from exhume.reconstruction import load_reconstruction
from exhume.requests.command_line import shown_line
from exhume.requests.command_options import RequestCommand
from exhume.requests.request import Request
from exhume_papers.catalogue import registry
from exhume_papers.catalogue.thresholds import Panel, ThresholdFigure, sweeps_of
from exhume_papers.making.request_kinds import KINDS

Command = Callable[..., subprocess.CompletedProcess[str]]
MEASURED = ("seconds", "peak_memory_mb", "speedup", "started", "finished")
"""Parts of the names of numbers that depend on the machine and the hour."""
USERS = """
from torch import nn

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 60), nn.Tanh(), nn.Linear(60, 1))
"""
SWEEP = """
[[victim]]
kind = "rf"
data = "sphere"
dim = 6
samples = 2
ratio = 4

[[attack]]
method = "heavy-ball"
iterations = 3
"""
RF = "train rf --data sphere --dim 8 --samples 3 --ratio 4 --out run"

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


def timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [timeless(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: timeless(part) for key, part in value.items() if not any(word in key for word in MEASURED)}


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Goes to a new folder with the files of a user, the same in each."""

    def to(name: str) -> Path:
        folder = tmp_path / name
        (folder / "photos").mkdir(parents=True)
        (folder / "users_small_nets.py").write_text(USERS)
        (folder / "grid.toml").write_text(SWEEP)
        stream = np.random.default_rng(0)
        for number in range(4):
            Image.fromarray(stream.integers(0, 256, (5, 5, 3)).astype(np.uint8)).save(folder / f"photos/{number}.png")
        rows = torch.randn(60, 9, generator=torch.Generator().manual_seed(1)) / 3
        inputs = torch.randn(2, 9, generator=torch.Generator().manual_seed(2))
        inputs *= 3 / inputs.norm(dim=1, keepdim=True)
        head = (torch.linalg.pinv((inputs @ rows.T).clamp_min(0).double()) @ torch.tensor([1.0, -1.0]).double()).float()
        save_file({"fc.weight": head[None]}, folder / "w.safetensors")
        save_file({"V": rows}, folder / "V.safetensors")
        save_file({"inputs": inputs}, folder / "rows.safetensors")
        save_file({"inputs": torch.randn(5, 8, generator=torch.Generator().manual_seed(3))}, folder / "c.safetensors")
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        sys.modules.pop("users_small_nets", None)
        return folder

    return to


def last_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


FACES = "--data faces --samples 3 --side 5 --seed 4"
VICTIMS = {
    "rf": (f"rf {FACES} --ratio 2.5 --activation tanh --bias 0.5 --ridge 0.1", "--method heavy-ball --iterations 9"),
    "prior": (f"rf {FACES} --ratio 2", "--prior image --iterations 2 --seed 3"),
    "glm": (f"glm {FACES} --loss square --penalty 0.1", "--iterations 3 --held-out 0.1"),
    "two-layer": (
        f"two-layer {FACES} --width 40 --steps 30 --growing --first-scale 0.5 --knows-first-layer",
        "--method ntk --gradients-at trained --iterations 3 --dtype float64",
    ),
    "private": (f"two-layer {FACES} --width 20 --noise-multiplier 0.5 --private-steps 3", "--iterations 3"),
    "resnet": (f"resnet {FACES} --width 2 --steps 3 --zero-head --defence int8", "--iterations 2 --samples 3"),
    "vit": (f"vit {FACES} --embedding 4 --patch 1 --depth 1 --steps 3", "--iterations 2 --budget 2m"),
    "factory": (f"users_small_nets:small {FACES} --steps 20 --head 3 --image-shape 1,5,5", "--iterations 2"),
}


@pytest.mark.parametrize("kind", VICTIMS)
def test_the_commands_of_a_page_make_its_run_again(exhume: Command, enter: Callable[[str], Path], kind: str) -> None:
    victim, attack = VICTIMS[kind]
    model = ["--model", "users_small_nets:small"] if kind == "factory" else []
    first = enter("first")
    for line in (f"train {victim} --out run", f"attack run {attack}", "evaluate run", "report run"):
        last_json(exhume(*shlex.split(line), *([] if line.startswith("train") else model), "--json"))
    commands = json.loads((first / "run" / "report.json").read_text())["commands"]
    second = enter("second")
    for command in commands:
        done = exhume(*shlex.split(command)[1:])
        assert done.returncode == 0, (command, done.stderr)
    summaries = [json.loads((folder / "run" / "summary.json").read_text()) for folder in (first, second)]
    assert timeless(summaries[0]) == timeless(summaries[1])
    configs = [json.loads((folder / "run" / "config.json").read_text()) for folder in (first, second)]
    assert configs[0] == configs[1], "also where an option makes no difference to these few steps"
    kept = [load_reconstruction(folder / "run" / "reconstruction.safetensors").request for folder in (first, second)]
    assert kept[0] == kept[1]
    assert json.loads((second / "run" / "report.json").read_text())["commands"] == commands


LINES = {
    "evaluate": ([RF, "attack run --iterations 3"], "evaluate run"),
    "report": ([RF, "attack run --iterations 3"], "report run --reveal"),
    "attack": ([RF], "attack run --pool 2 --iterations 3 --memory 4G --exact"),
    "compare": ([RF], "compare run --attacks split-newton --budget 60s --dtype float64 --seed 3"),
    "known": ([RF], "known run --missing 1 --out others.safetensors"),
    "rank": ([RF], "rank run --candidates c.safetensors --loss none --seed 2"),
    "gauge": ([], "gauge w.safetensors --dim 9 --samples 2 --head fc"),
    "audit": (
        [],
        "audit w.safetensors --features V.safetensors --activation relu --truth rows.safetensors --samples 2 "
        "--budget 20s --row-norm 3 --out audit",
    ),
    "scan": ([], "scan w.safetensors --fail-on data"),
    "runs": ([RF], "runs . --where victim=rf --where 'n>2' --columns n,d,p"),
    "data spectrum": ([], "data spectrum photos --out spectrum.json --side 5 --grey"),
    "width": ([], "width --samples 1 --dim 50 --subspace 2 --separation 0.3"),
    "count": ([RF], "count run --from 2 --to 4 --by 2 --iterations 20 --go-on --cosine 0.9"),
    "sweep": ([], "sweep grid.toml --engine here --out swept"),
    "bench": ([], "bench --dim 6 --samples 2 --steps 30 --published 5s --out raced"),
    "reproduce": ([], "reproduce fig3 --quick --engine here --out figures"),
    "demo": ([], "demo --out shown"),
}
ALONE = {"data fetch", "serve"}
"""Tested by themselves, below."""


def test_every_command_is_run_again() -> None:
    trained = {name for name in MODELS if name.startswith("train ")}
    assert MODELS.keys() - trained == LINES.keys() | ALONE
    assert {MODELS[name].command for name in trained} == {"train", *(f"train {kind}" for kind in KINDS)}
    assert {victim.partition(" ")[0] for victim, _ in VICTIMS.values()} >= KINDS.keys()


@pytest.fixture
def small_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    victim = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "params": [2, 12]}
    panel = Panel("sphere", sweeps_of([victim], [{"method": "heavy-ball", "iterations": 3}], 1))
    figure = ThresholdFigure("fig3", "first", "much", lambda scale: [panel])
    monkeypatch.setattr(registry, "FIGURES", {figure.name: figure})


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume_papers.cli.demo.SAMPLES", 2)
    for name, value in {"SAMPLES": 4, "UNITS": 600, "STEPS": 200}.items():
        monkeypatch.setattr(f"exhume_papers.studies.ordinary_network.{name}", value)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that the program was given."""
    got: list[Request] = []
    perform = RequestCommand.perform

    def keep(self: RequestCommand[Any], request: Request, as_json: bool) -> None:
        got.append(request)
        perform(self, request, as_json)

    monkeypatch.setattr(RequestCommand, "perform", keep)
    return got


@pytest.mark.usefixtures("small_catalogue", "small_demo")
@pytest.mark.parametrize("command", LINES)
def test_a_printed_line_does_the_same_again(
    exhume: Command, enter: Callable[[str], Path], asked: list[Request], command: str
) -> None:
    before, line = LINES[command]
    told = []
    for folder in ("first", "second"):
        enter(folder)
        for earlier in before:
            last_json(exhume(*shlex.split(earlier), "--json"))
        told.append(last_json(exhume(*shlex.split(line), "--json")))
        line = shown_line(asked[-1]).removeprefix("exhume ")
    assert line.startswith(command)
    assert asked[-1] == asked[-2 - len(before)]
    assert timeless(told[0]) == timeless(told[1])


def test_what_is_fetched_is_fetched_again(
    exhume: Command, asked: list[Request], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Any] = []

    def fetch(name: str, folder: Path | None, source: str | None, progress: object) -> Path:
        calls.append((name, folder, source))
        return tmp_path

    monkeypatch.setattr("exhume_papers.data.fetch.fetch", fetch)
    last_json(exhume("data", "fetch", "cifar10", "--json"))
    last_json(exhume(*shlex.split(shown_line(asked[-1]))[1:], "--json"))
    assert calls == [("cifar10", None, None)] * 2
