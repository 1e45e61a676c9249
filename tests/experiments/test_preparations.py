"""What config.json tells of a model's images."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.data.records import prepare_alike
from exhume.errors import ExhumeError
from exhume.experiments.preparations import described_preparation, preparation_of
from exhume.experiments.run import RunFolder
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.random_features import RandomFeaturesConfig

SHAPE = (1, 5, 5)


def test_a_run_tells_how_its_images_were_prepared_without_its_truth(tmp_path: Path) -> None:
    faces = DataConfig.parse(name="faces", samples=4, side=5)
    data = load(faces)
    train_run(tmp_path / "a", faces, RandomFeaturesConfig(params=30), data)
    (tmp_path / "a" / "truth.safetensors").unlink()
    told = preparation_of(RunFolder(tmp_path / "a").config(), SHAPE)
    assert told is not None
    pixels = load(DataConfig.parse(name="faces", samples=4, side=5, standardise="none", norm="keep")).inputs
    assert torch.allclose(prepare_alike(pixels.reshape(-1, *SHAPE), told), data.inputs, atol=1e-5)
    assert "scale" not in json.dumps(described_preparation(data.preparation)), "the norms of single images stay untold"


def test_rows_that_were_never_images_have_no_preparation() -> None:
    assert described_preparation(load(DataConfig(name="sphere", samples=2, dim=3)).preparation) == {}


@pytest.mark.parametrize(("standardise", "known"), [("none", True), ("subset", False), ("channels", False)])
def test_runs_of_before_tell_only_what_their_settings_fix(standardise: str, known: bool) -> None:
    assert (preparation_of({"data": {"standardise": standardise}}, SHAPE) is not None) is known
    assert preparation_of({}, SHAPE) is None


@pytest.mark.parametrize(
    "told",
    [{"mean": [0.5]}, {"mean": ["x"], "std": [1]}, {"mean": [0.5, 0.5], "std": [1.0]}, {"mean": [0], "std": [0]}, []],
)
def test_a_damaged_preparation_is_one_line(told: Any) -> None:
    with pytest.raises(ExhumeError, match=r"in the preparation of config\.json"):
        preparation_of({"preparation": told}, SHAPE)
