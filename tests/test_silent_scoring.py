"""The scoring that all benchmarks of silent units share: a fault here would hide wrong calls."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from exhume.reconstruction import Outcome

PLACE = Path(__file__).parents[1] / "benchmarks" / "silent_scoring.py"


@pytest.fixture(scope="module")
def scoring() -> ModuleType:
    spec = importlib.util.spec_from_file_location("silent_scoring_under_test", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def found(candidates: Tensor, *confidence: float) -> Any:
    certificate = SimpleNamespace(confidence=confidence)
    return SimpleNamespace(inputs=candidates, certificate=certificate, facts={"rank": 3}, outcome=Outcome.PARTIAL)


SAMPLES = torch.tensor([[10.0, 0.0, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0]])


def test_right_calls_misses_and_wrong_calls_are_told_apart(scoring: ModuleType) -> None:
    blend = (SAMPLES[1] + SAMPLES[2]) / 2
    candidates = torch.stack([SAMPLES[0] * 1.01, SAMPLES[1] * 1.05, blend])
    told = scoring.score(found(candidates, 0.9, 0.4, 0.8), SAMPLES, 1.0)
    assert (told.within, told.called, told.missed, told.wrong, told.repeated) == (2, 2, 1, 1, 0)
    assert told.median == pytest.approx(0.05)
    assert told.worst == pytest.approx(0.5**0.5)


def test_a_sample_called_twice_is_seen(scoring: ModuleType) -> None:
    candidates = torch.stack([SAMPLES[0], SAMPLES[0] * 1.001])
    told = scoring.score(found(candidates, 1.0, 1.0), SAMPLES, 1.0)
    assert (told.called, told.wrong, told.repeated) == (2, 0, 1)


def test_a_blend_of_samples_alike_is_blurred_though_close_by_their_norm(scoring: ModuleType) -> None:
    alike = torch.tensor([[100.0, 1.0], [100.0, -1.0]])
    told = scoring.score(found(alike.mean(dim=0, keepdim=True), 1.0), alike, 1.0)
    assert (told.wrong, told.blurred) == (0, 1)


def test_nothing_found_is_an_error_of_one(scoring: ModuleType) -> None:
    told = scoring.score(found(torch.zeros(0, 3)), SAMPLES, 1.0)
    assert (told.within, told.called, told.wrong, told.median) == (0, 0, 0, 1.0)


def test_inputs_that_training_saw_besides_are_not_wrong(scoring: ModuleType) -> None:
    candidates, also = -SAMPLES[:1], -SAMPLES
    assert scoring.score(found(candidates, 1.0), SAMPLES, 1.0).wrong == 1
    assert scoring.score(found(candidates, 1.0), SAMPLES, 1.0, also).wrong == 0
