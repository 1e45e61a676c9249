"""`exhume audit` on checkpoints: states beside the weights, starts of all kinds, and bad input in one line."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from silent_victims import Trained, train

Command = Callable[..., subprocess.CompletedProcess[str]]
USERS = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(40, 400), nn.ReLU(), nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 3))

class Later(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(400, 3)
        self.names = nn.Embedding(7, 5)
        self.body = nn.Linear(40, 400)

    def forward(self, inputs):
        return self.head(self.body(inputs).relu())
"""
MODEL = ("--model", "users_states:net", "--truth", "truth.safetensors", "--budget", "60s", "--json")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "users_states.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("users_states", None)


def saved(victim: Trained) -> None:
    checkpoint = {"epoch": 9, "model": victim.model.state_dict(), "optimizer": victim.optimiser.state_dict()}
    torch.save(checkpoint, "after.pt")
    save_file({"inputs": victim.inputs}, "truth.safetensors")


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_checkpoint_alone_is_attacked_through_its_optimiser(exhume: Command) -> None:
    saved(train(seed=40))
    done = exhume("audit", "after.pt", *MODEL, "--out", "o")
    found = answer(done)
    assert (found["method"], found["target"], found["recovered"]) == ("silent-units", "momentum", 12)
    assert "Layer '0' (40 -> 400): the momentum buffer that the optimiser keeps." in done.stderr


def test_an_earlier_checkpoint_is_a_start(exhume: Command) -> None:
    early = train(seed=41, steps=30)
    torch.save({"model": early.model.state_dict(), "optimizer": early.optimiser.state_dict()}, "early.pt")
    saved(train(seed=41, steps=90))
    found = answer(exhume("audit", "after.pt", "--initial", "early.pt", *MODEL, "--out", "o"))
    assert (found["method"], found["recovered"]) == ("silent-units", 12)


def test_the_seed_is_found_where_the_layer_is_not_drawn_first(here: Path) -> None:
    from exhume.auditing.drawn_start import found_seed
    from exhume.auditing.from_files import _build

    model = _build("users_states:Later", 17)
    inputs = torch.randn(12, 40, generator=torch.Generator().manual_seed(0))
    made = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(60):
        made.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), torch.arange(12) % 3).backward()
        made.step()
    tried: list[int] = []
    assert found_seed(partial(_build, "users_states:Later"), model.state_dict(), 30, tried.append) == 17
    assert tried == list(range(18))
    assert found_seed(partial(_build, "users_states:Later"), model.state_dict(), 10) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("another shape", "0.weight 399x40 instead of 400x40"),
        ("the same twice", "found the same weights twice: nothing was trained between them"),
        ("not a number", "NaN or infinite ones in 0.weight"),
        ("another model", "that the model does not have"),
    ],
)
def test_a_bad_start_is_one_line(exhume: Command, change: str, words: str) -> None:
    victim = train(seed=42, steps=3)
    save_file({"inputs": victim.inputs}, "truth.safetensors")
    torch.save(victim.model.state_dict(), "after.pt")
    before = {name: value.clone() for name, value in victim.before.items()}
    if change == "another shape":
        before["0.weight"] = before["0.weight"][1:]
    elif change == "the same twice":
        before = victim.model.state_dict()
    elif change == "not a number":
        before["0.weight"][3, 4] = float("nan")
    else:
        before["9.weight"] = torch.ones(2)
    torch.save(before, "before.pt")
    done = exhume("audit", "after.pt", "--initial", "before.pt", *MODEL, "--out", "o")
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()[-1]) < 400
    assert "Traceback" not in done.stderr


def test_a_change_of_full_rank_names_its_likely_causes(exhume: Command) -> None:
    victim = train(seed=43, steps=60, optimiser="Adam")
    saved(victim)
    torch.save(victim.before, "before.pt")
    torch.save(victim.model.state_dict(), "after.pt")
    answer(exhume("audit", "after.pt", "--initial", "before.pt", *MODEL, "--budget", "3s", "--out", "o"))
    attempts = json.loads(Path("o/report.json").read_text())["attempts"]
    assert "full rank" in attempts[0]["note"]
    for cause in ("more samples than dimensions", "Adam", "augmentation", "another start"):
        assert cause in attempts[0]["note"]
