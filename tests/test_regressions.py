"""Observations with known results: a change that loses a recovery, or calls one that is none, is seen.

Some are stored in regressions/, the others are made from seeds by today's training.

Each line says what this version finds. A result that gets better may be raised here; one that gets worse is a loss.
"""

import importlib.util
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from exhume.attacks.running.loop import Limits
from exhume.attacks.running.prepare import prepare, run
from exhume.attacks.running.settings import AttackSettings
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.metrics.errors import evaluate
from exhume.observation import Observation
from exhume.reconstruction import Outcome
from exhume_papers.making.training import train_victim
from exhume_papers.victims.descent_loop import Surroundings
from exhume_papers.victims.random_features import RandomFeaturesConfig
from exhume_papers.victims.two_layer import TwoLayerConfig

CORPUS = Path(__file__).parent / "regressions"
STORED = sorted(path.parent for path in CORPUS.glob("*/expected.json"))


@dataclass(frozen=True)
class Known:
    """`error` is the largest rho that is still the known result; `found` the number of candidates."""

    name: str
    data: DataConfig
    model: RandomFeaturesConfig | TwoLayerConfig
    outcome: Outcome
    error: float = math.inf
    found: int | None = None
    method: str = "auto"
    told: int | None = None
    seed: int = 0


def sphere(samples: int, dim: int, seed: int = 0) -> DataConfig:
    return DataConfig(name="sphere", samples=samples, dim=dim, seed=seed, dtype="float64")


def weights(params: int, activation: str = "relu", seed: int = 0) -> RandomFeaturesConfig:
    return RandomFeaturesConfig(params=params, activation=activation, seed=seed)


FAST = (
    Known("one sample", sphere(1, 4), weights(40), Outcome.RECOVERED, 1e-4, 1, told=1),  # untold, it may be two
    Known("relu, 3 samples", sphere(3, 8), weights(200), Outcome.RECOVERED, 1e-3, 3),
    Known("tanh, 3 samples", sphere(3, 8, seed=1), weights(200, "tanh"), Outcome.RECOVERED, 1e-3, 3),
    Known("relu, 5 samples", sphere(5, 10, seed=2), weights(400, seed=1), Outcome.RECOVERED, 1e-3, 5),
    Known("gelu, 2 samples", sphere(2, 6, seed=3), weights(150, "gelu"), Outcome.RECOVERED, 1e-3, 2),
    Known("sigmoid, 2 samples", sphere(2, 6, seed=4), weights(150, "sigmoid"), Outcome.RECOVERED, 1e-2, 2),
    Known("twice the threshold", sphere(10, 50), weights(1000), Outcome.RECOVERED, 1e-4, 10),
)
SLOW = (
    Known("fewer weights than unknowns", sphere(4, 20), weights(40), Outcome.SPURIOUS),
    Known("relu, 10 samples, d 50", sphere(10, 50), weights(1500), Outcome.RECOVERED, 1e-3, 10),
    Known("relu, 20 samples, d 100", sphere(20, 100), weights(6000), Outcome.RECOVERED, 1e-3, 20),
    Known("tanh, 10 samples, d 50", sphere(10, 50, seed=1), weights(2000, "tanh"), Outcome.RECOVERED, 1e-3, 10),
)


def observe(case: Known, folder: object) -> tuple[Dataset, Observation]:
    data = load(case.data)
    victim = train_victim(case.model, data, folder, Surroundings())  # type: ignore[arg-type]
    return data, victim.observation


def check(case: Known, tmp_path: object) -> None:
    data, observation = observe(case, tmp_path)
    settings = AttackSettings(case.method, samples=case.told, seed=case.seed, limits=Limits(600.0))
    found = run(prepare(observation, settings)).reconstruction
    error = evaluate(data.inputs, found.candidates.to(data.inputs.dtype)).error
    said = (found.outcome, len(found.candidates), error)
    assert found.outcome is case.outcome, said
    assert case.found in (None, len(found.candidates)), said
    assert error <= case.error, said
    assert torch.isfinite(found.candidates).all()


@pytest.mark.parametrize("case", FAST, ids=[case.name for case in FAST])
def test_what_was_recovered_once_is_recovered_now(case: Known, tmp_path: object) -> None:
    check(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=[case.name for case in SLOW])
def test_larger_problems_that_were_recovered_once_are_recovered_now(case: Known, tmp_path: object) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize("stored", STORED, ids=[path.name for path in STORED])
def test_what_was_recovered_from_stored_files_is_recovered_now(stored: Path) -> None:
    """The files are not made again: whatever training does today, these observations stay as they were."""
    spec = importlib.util.spec_from_file_location("regressions_make", CORPUS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = make  # its dataclasses look there
    spec.loader.exec_module(make)
    case = next(case for case in make.CASES if case.name == stored.name)
    expected = json.loads((stored / "expected.json").read_text())
    found = make.attack(case, stored)
    assert found.outcome == expected["outcome"], found
    assert found.candidates == expected["candidates"], found
    assert found.error <= max(2 * expected["error"], 1e-3), found


def test_every_stored_case_is_there_and_small() -> None:
    assert len(STORED) >= 9
    assert sum(path.stat().st_size for path in CORPUS.rglob("*.safetensors")) < 500_000
