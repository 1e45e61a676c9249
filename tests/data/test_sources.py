"""Data sets that are registered from outside: by a call, or by an entry point."""

from importlib.metadata import EntryPoint

import pytest
import torch

from exhume.data.config import SOURCES, DataConfig, DataSource, check_images, register_data
from exhume.data.dataset import Dataset
from exhume.data.image_set import ImageSet, as_dataset
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SOURCES, "_known", dict(SOURCES._known))


def stripes(config: DataConfig) -> Dataset:
    pixels = torch.zeros(config.samples, 1, 4, 4, dtype=torch.float64)
    pixels[:, :, ::2] = torch.linspace(0.5, 1, config.samples)[:, None, None, None]
    return as_dataset(ImageSet(pixels, (), torch.full((config.samples,), -1)), config)


PLACES = {"faces": "FACES", "gone": "NONE", "other": "FACES"}
STRIPES = DataSource("stripes", stripes, check_images, {"norm": "keep"})


def test_a_data_set_is_registered_by_a_call() -> None:
    register_data(STRIPES)
    assert "stripes" in SOURCES.names()
    data = load(DataConfig(name="stripes", samples=3))
    assert data.inputs.shape == (3, 16)
    assert data.preparation.norm == "keep"
    assert data.description.startswith("stripes: 3 images 1x4x4")


def test_a_data_set_is_found_through_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {name: EntryPoint(name, f"exhume.data.faces:{what}", SOURCES.group) for name, what in PLACES.items()}
    monkeypatch.setattr(SOURCES, "_known", {})
    monkeypatch.setattr(SOURCES, "_points", entries)
    assert SOURCES.find("faces").name == "faces"
    with pytest.raises(
        ExhumeError, match=r"^expected a data set at exhume.data.faces:NONE .*'gone'.*, found Attribute"
    ):
        SOURCES.get("gone")
    with pytest.raises(ExhumeError, match=r"^expected a data set 'other' at exhume.data.faces:FACES, found 'faces'"):
        SOURCES.get("other")


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^expected a new name for a data set, found 'faces', which is taken"):
        register_data(DataSource("faces", stripes, check_images))


def test_a_path_is_no_name() -> None:
    assert SOURCES.get("some/folder") is None
    assert {"faces", "sphere", "cifar10", "tiny-imagenet"} <= set(SOURCES.names())
