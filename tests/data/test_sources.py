"""Data sets that are registered from outside: by a call, or by an entry point."""

from importlib.metadata import EntryPoint

import pytest
import torch

from exhume.data import sources
from exhume.data.config import DataConfig, check_images
from exhume.data.dataset import Dataset
from exhume.data.image_set import ImageSet, as_dataset
from exhume.data.load import load
from exhume.data.sources import DataSource, register, source_named, source_names
from exhume.errors import ExhumeError


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_registered", dict(sources._registered))


def stripes(config: DataConfig) -> Dataset:
    pixels = torch.zeros(config.samples, 1, 4, 4, dtype=torch.float64)
    pixels[:, :, ::2] = torch.linspace(0.5, 1, config.samples)[:, None, None, None]
    return as_dataset(ImageSet(pixels, (), torch.full((config.samples,), -1)), config)


STRIPES = DataSource("stripes", stripes, check_images, {"norm": "keep"})


def test_a_data_set_is_registered_by_a_call() -> None:
    register(STRIPES)
    assert "stripes" in source_names()
    data = load(DataConfig(name="stripes", samples=3))
    assert data.inputs.shape == (3, 16)
    assert data.preparation.norm == "keep"
    assert data.description.startswith("stripes: 3 images 1x4x4")


def test_a_data_set_is_found_through_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_registered", {})
    entries = {
        "faces": EntryPoint("faces", "exhume.data.faces:FACES", sources.GROUP),
        "gone": EntryPoint("gone", "exhume.data.faces:NONE", sources.GROUP),
    }
    monkeypatch.setattr(sources, "_installed", lambda: entries)
    found = source_named("faces")
    assert found is not None
    assert found.name == "faces"
    with pytest.raises(ExhumeError, match=r"^expected the data set gone in exhume.data.faces:NONE, found Attribute"):
        source_named("gone")


def test_a_path_is_no_name() -> None:
    assert source_named("some/folder") is None
    assert {"faces", "sphere", "cifar10", "tiny-imagenet"} <= set(source_names())
