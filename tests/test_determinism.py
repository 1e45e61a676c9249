"""The same seed gives the same bits on the same machine and thread count, and nearly the same numbers otherwise.

How near: FLOAT64 for attacks that end by themselves in double precision, FLOAT32 in single precision, in units of the
data's own scale. What several processes give is held against one process in tests/cli/test_cli_ranks.py.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import exhume
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.running.loop import Attacked, Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.cli.app import main
from exhume.features import rows
from exhume.features.module import penultimate_features
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold
from exhume.files import read_tensors
from exhume.observation import Knowledge, Observation

FLOAT64, FLOAT32 = 1e-6, 1e-3
COSTS = ("seconds", "peak_memory_mb")
METHODS: dict[str, AnyMethod] = {"split-newton": SplitNewton(), "heavy-ball": HeavyBall(iterations=60)}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def victim(dtype: torch.dtype = torch.float64) -> Observation:
    """Three samples of six numbers in 400 weights, V kept as a seed."""
    drawn = DrawnRows(seed=5, p=400, d=6)
    stream = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 6, generator=stream, dtype=torch.float64)
    inputs *= 6**0.5 / inputs.norm(dim=1, keepdim=True)
    coefficients = torch.tensor([[0.9, -1.1, 0.7]], dtype=torch.float64)
    features = RidgeFeatures(drawn, exhume.observe_features(torch.ones(1, 6), torch.ones(1), "relu").ridge.activation)
    weights = coefficients @ (inputs @ hold(drawn, dtype=torch.float64).values.T).clamp_min(0)
    return Observation(features, weights.to(dtype), Knowledge(samples=3))


def attack(method: AnyMethod, dtype: torch.dtype = torch.float64, **options: Any) -> Attacked:
    return run_attack(victim(dtype), method, dtype=dtype, **options)


def plain_trace(attacked: Attacked) -> list[dict[str, float]]:
    return [{name: value for name, value in line.items() if name not in COSTS} for line in attacked.trace]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_the_same_seed_gives_the_same_bits(method: AnyMethod, dtype: torch.dtype, count: int) -> None:
    torch.set_num_threads(count)
    once, again = attack(method, dtype), attack(method, dtype)
    assert torch.equal(once.reconstruction.candidates, again.reconstruction.candidates)
    assert torch.equal(once.reconstruction.coefficients, again.reconstruction.coefficients)
    assert plain_trace(once) == plain_trace(again)


def test_the_same_seed_gives_the_same_bits_on_a_network() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 1))
    features = penultimate_features(model, "2", (4,))
    weights = torch.tensor([[1.0, -0.8]]) @ features(torch.randn(2, 4)).detach()
    observation = Observation(features, weights, Knowledge(samples=2))
    method = ModuleNewton(iterations=10)
    once, again = (run_attack(observation, method, seed=3) for _ in range(2))
    assert torch.equal(once.reconstruction.candidates, again.reconstruction.candidates)
    assert plain_trace(once) == plain_trace(again)


def test_another_seed_starts_elsewhere() -> None:
    one, other = attack(HeavyBall(iterations=2), seed=0), attack(HeavyBall(iterations=2), seed=1)
    assert not torch.equal(one.reconstruction.candidates, other.reconstruction.candidates)


def assert_near(one: Attacked, other: Attacked, tolerance: float) -> None:
    assert one.reconstruction.outcome is other.reconstruction.outcome
    for name in ("candidates", "coefficients"):
        found, expected = (getattr(run.reconstruction, name) for run in (one, other))
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.float64, FLOAT64)], ids=str)
@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_another_number_of_threads_gives_nearly_the_same(
    method: AnyMethod, dtype: torch.dtype, tolerance: float
) -> None:
    torch.set_num_threads(1)
    alone = attack(method, dtype)
    torch.set_num_threads(3)
    assert_near(attack(method, dtype), alone, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.float64, FLOAT64)], ids=str)
def test_streamed_rows_in_blocks_of_any_size_give_nearly_the_same_as_rows_in_memory(
    dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = attack(METHODS["heavy-ball"], dtype)
    for block_bytes in (1, 4 * 6 * 256, 64 * 2**20):
        monkeypatch.setattr(rows, "BLOCK_BYTES", block_bytes)
        streamed = attack(METHODS["heavy-ball"], dtype, limits=Limits(memory_bytes=100))
        assert_near(streamed, held, tolerance)


def test_rows_in_blocks_of_another_size_give_nearly_the_same_by_split_newton(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same budget: with a smaller one this method looks at fewer rows, which may change what it finds."""
    whole = attack(METHODS["split-newton"])
    monkeypatch.setattr(rows, "BLOCK_BYTES", 8 * 6 * 64)
    assert_near(attack(METHODS["split-newton"]), whole, FLOAT64)


def without_costs(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key not in COSTS}


def told_of(run: Path) -> dict[str, Any]:
    """The files of a run that tell what it cost, without that."""
    with (run / "trace.csv").open(newline="") as file:
        trace = [without_costs(line) for line in csv.DictReader(file)]
    found = read_tensors(run / "reconstruction.safetensors", "reconstruction")
    bits = {name: (tensor.dtype, tuple(tensor.shape), tensor.tolist()) for name, tensor in found.tensors.items()}
    summary = json.loads((run / "summary.json").read_text())
    return {
        "summary.json": without_costs(summary),
        "trace.csv": trace,
        "reconstruction.safetensors": (bits, without_costs(found.meta)),
    }


def test_two_runs_of_the_same_commands_are_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, but for what they cost."""
    for name in ("a", "b"):
        run = str(tmp_path / name / "run")
        train = "train rf --data sphere --dim 5 --samples 2 --ratio 6 --seed 4 --out"
        for command in ([*train.split(), run], ["attack", run], ["evaluate", run]):
            monkeypatch.setattr(sys, "argv", ["exhume", *command])
            main()
    a, b = tmp_path / "a" / "run", tmp_path / "b" / "run"
    one, other = told_of(a), told_of(b)
    same = {path.name for path in a.iterdir()} - one.keys()
    assert same == {"config.json", "observation.safetensors", "truth.safetensors", "snapshots.safetensors"}
    assert {path.name for path in b.iterdir()} == {path.name for path in a.iterdir()}
    for file in same:
        assert (a / file).read_bytes() == (b / file).read_bytes(), file
    assert one == other
    assert one["trace.csv"]
    assert {"candidates", "coefficients"} <= one["reconstruction.safetensors"][0].keys()
