"""The same request gives the same result, whichever door it came through."""

import dataclasses
import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import exhume as api
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.running.pooling import run_pool
from exhume.attacks.running.prepare import prepare
from exhume.attacks.running.settings import AttackSettings
from exhume.auditing.attempts import carry_out
from exhume.experiments.attack_request import AttackRequest
from exhume.experiments.attacking import attack_run
from exhume.experiments.run import RunFolder
from exhume.reconstruction import Reconstruction
from exhume_papers.studies.comparing import compare_attacks
from exhume_papers.sweeps.engines import HereEngine
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweeping import run_sweep

Command = Callable[..., subprocess.CompletedProcess[str]]
SEED = 3
FEW: dict[str, Any] = {"iterations": 25}
VICTIMS: dict[str, dict[str, Any]] = {
    "random features": {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "ratio": 20},
    "a head known up to its seed": {
        "kind": "two-layer",
        "data": "sphere",
        "dim": 6,
        "samples": 2,
        "width": 80,
        "steps": 40,
        "initial": "seed",
    },
}


@pytest.fixture(params=VICTIMS, scope="module")
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that a sweep made and attacked."""
    out = tmp_path_factory.mktemp("sweep")
    plan = Sweep(victims=(VICTIMS[request.param],), attacks=({"method": "split-newton", **FEW},), seeds=(SEED,)).plan()
    swept = run_sweep(plan, out, HereEngine(out))
    assert (swept.done, swept.failed) == (1, 0)
    return RunFolder(out / "runs" / plan.runs[0].key)


def in_python(folder: RunFolder) -> Reconstruction:
    return api.reconstruct(api.load_observation(folder.path), method=api.SplitNewton(**FEW), seed=SEED, budget="1h")


def in_python_by_name(folder: RunFolder) -> Reconstruction:
    return api.reconstruct(api.load_observation(folder.path), method="split-newton", seed=SEED, **FEW)


def by_request(folder: RunFolder) -> Reconstruction:
    attack_run(folder, AttackRequest(method="split-newton", **FEW).prepare(folder, folder.observation(), SEED))
    return folder.reconstruction()


def in_a_pool(folder: RunFolder) -> Reconstruction:
    """Of one seed: a pool puts what most runs agree on first, and here that is all of it."""
    settings = AttackSettings("split-newton", FEW, seed=SEED, pool=1)
    return run_pool(prepare(folder.observation(), settings)).reconstruction


def in_an_audit(folder: RunFolder) -> Reconstruction:
    offers = (PlannedAttack("split-newton", "", SEED),)
    attacked = carry_out(folder.observation(), offers, 3600, AttackSettings(options=FEW))[0].attacked
    assert attacked is not None
    return attacked.reconstruction


@pytest.mark.parametrize("door", [in_python, in_python_by_name, by_request, in_a_pool, in_an_audit])
def test_every_door_finds_the_same(swept: RunFolder, door: Callable[[RunFolder], Reconstruction]) -> None:
    expected = swept.reconstruction()
    found = door(swept)
    ours, theirs = (result.candidates[result.candidates[:, 0].argsort()] for result in (found, expected))
    assert torch.equal(ours, theirs)
    same = {"iterations", "passes", "loss", "method", "seed"}
    assert {name: getattr(found, name) for name in same} == {name: getattr(expected, name) for name in same}
    assert found.settings == expected.settings
    for name in ("start_seed", "start_scale"):
        assert found.facts.get(name) == expected.facts.get(name)


def test_the_command_line_finds_the_same(swept: RunFolder, exhume: Command) -> None:
    expected = swept.reconstruction()
    done = exhume("attack", swept.path, "--method", "split-newton", "--iterations", 25, "--seed", SEED, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    told = expected.summary()
    for name in told.keys() - {"seconds", "peak_memory_mb"}:
        assert summary[name] == told[name], name
    assert torch.equal(swept.reconstruction().candidates, expected.candidates)


def test_a_comparison_finds_the_same(swept: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """In as few iterations, which `exhume compare` has no option for."""
    monkeypatch.setattr("exhume_papers.studies.comparing.AttackRequest", partial(AttackRequest, **FEW))
    row, expected = compare_attacks(swept, ["split-newton"], 3600.0, SEED)[0], swept.reconstruction()
    assert (row.loss, row.held_out_loss, row.passes) == (expected.loss, expected.held_out_loss, expected.passes)


def test_a_start_is_searched(swept: RunFolder) -> None:
    seeded = swept.observation().knowledge.initial == "seed"
    assert swept.reconstruction().facts.get("start_seed") == (SEED if seeded else None)


def test_auto_is_the_same_choice_at_every_door(tmp_path: Path) -> None:
    """Of a network whose first layer reads the inputs, and whose start is known, that layer is attacked."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 60), torch.nn.ReLU(), torch.nn.Linear(60, 1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs = torch.randn(3, 12)
    made = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(30):
        made.zero_grad()
        model(inputs).sub(torch.tensor([[1.0], [-1.0], [0.5]])).square().mean().backward()
        made.step()
    observation = api.observe(model, initial=before, input_shape=(12,))
    assert prepare(observation, AttackSettings()).method.name == "silent-units"
    told = prepare(observation, AttackSettings(samples=3)).method
    assert told.name != "silent-units", "which has no use for a number of samples"
    assert prepare(dataclasses.replace(observation, layers=()), AttackSettings()).method.name == told.name
