import urllib.request
from pathlib import Path

import pytest
import skimage
import torch

from exhume.data.faces import load_faces
from exhume.errors import UsageError


def test_the_faces_lie_inside_the_installed_package() -> None:
    assert (Path(skimage.__file__).parent / "data" / "lfw_subset.npy").is_file()


def test_faces_load_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("the faces must not be downloaded")

    monkeypatch.setattr("socket.socket.connect", no_network)
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    faces = load_faces(100)
    assert faces.pixels.shape == (100, 1, 25, 25)
    assert 0 <= faces.pixels.min() < faces.pixels.max() <= 1
    assert faces.class_names == ()
    assert set(faces.class_index.tolist()) == {-1}


def test_fewer_faces_are_the_first_ones() -> None:
    assert torch.equal(load_faces(3).pixels, load_faces(100).pixels[:3])


def test_more_faces_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="expected at most 100 samples of 'faces', found 101"):
        load_faces(101)
