import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fields", [{"name": "sphere", "dim": 12}, {"name": "faces"}])
def test_every_tensor_has_the_precision_asked_for(fields: dict[str, object], dtype: str) -> None:
    data = load(DataConfig.parse(**fields, samples=5, dtype=dtype))
    preparation = data.preparation
    tensors = [data.inputs, data.labels, preparation.mean, preparation.std, preparation.scale]
    assert {tensor.dtype for tensor in tensors} == {getattr(torch, dtype)}
    norms = torch.full((5,), math.sqrt(data.inputs.shape[1]), dtype=data.inputs.dtype)
    torch.testing.assert_close(data.inputs.norm(dim=1), norms)


def test_the_sphere_carries_no_image() -> None:
    data = load(DataConfig.parse(name="sphere", samples=4, dim=6, subspace=2, seed=3))
    assert data.inputs.shape == (4, 6)
    assert torch.linalg.matrix_rank(data.inputs).item() == 2
    assert data.image_shape is None
    assert data.class_names == ()
    assert data.class_index.tolist() == [-1] * 4
    assert data.preparation.scale.tolist() == [1.0] * 4
    assert data.description == (
        "sphere: 4 rows uniform on the sphere of radius sqrt(d) in 6 dimensions inside a random 2-dimensional "
        "subspace, labels Xg + noise of variance 0.25"
    )


def test_the_sphere_can_be_labelled_by_signs() -> None:
    data = load(DataConfig.parse(name="sphere", samples=30, dim=6, label_rule="sign"))
    assert set(data.labels.tolist()) == {-1.0, 1.0}
    assert data.description.endswith("labels sign(Xg)")


def test_loading_twice_gives_the_same_and_another_seed_another_sphere() -> None:
    first, again, other = (load(DataConfig.parse(name="sphere", samples=4, dim=6, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.inputs, other.inputs)


def test_faces_do_not_depend_on_the_seed_and_alternate_in_label() -> None:
    one, two = (load(DataConfig.parse(name="faces", samples=3, seed=seed)) for seed in (1, 2))
    assert torch.equal(one.inputs, two.inputs)
    assert one.labels.tolist() == [-1.0, 1.0, -1.0]
    assert one.image_shape == (1, 25, 25)
    assert one.description.startswith("faces: 3 images 1x25x25, standardised with the subset's mean 0.")
    assert one.description.endswith("rows brought to norm sqrt(d)")


def test_a_side_makes_images_smaller() -> None:
    data = load(DataConfig.parse(name="faces", samples=3, side=5, standardise="none", norm="keep"))
    full = load(DataConfig.parse(name="faces", samples=3, standardise="none", norm="keep"))
    assert data.image_shape == (1, 5, 5)
    torch.testing.assert_close(data.inputs[:, 0], full.inputs.reshape(3, 25, 25)[:, :5, :5].mean(dim=(1, 2)))


def test_a_folder_of_two_classes_is_labelled_by_them(tmp_path: Path) -> None:
    for number, name in enumerate(["ant", "bee"]):
        (tmp_path / name).mkdir()
        for shade in (10, 20):
            image = Image.new("L", (2, 2), shade + 100 * number)
            image.putpixel((0, 0), 255)
            image.save(tmp_path / name / f"{shade}.png")
    data = load(DataConfig.parse(name=str(tmp_path), samples=3))
    assert data.labels.tolist() == [-1.0, -1.0, 1.0]
    assert data.class_index.tolist() == [0, 0, 1]
    assert data.description.startswith(f"{tmp_path.name}: 3 images 1x2x2 (2 ant, 1 bee), standardised")
    shown = data.preparation.to_pixels(data.inputs, data.preparation.scale)
    assert (shown[:, 0, 1, 1] * 255).round().tolist() == [10, 20, 110]


@pytest.mark.parametrize("name", ["cifr10", "no/such/folder"])
def test_an_unknown_name_lists_the_known(name: str) -> None:
    with pytest.raises(UsageError, match=f"cifar10, faces, sphere, tiny-imagenet or a folder .* found '{name}'"):
        load(DataConfig.parse(name=name, samples=1))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"")
    with pytest.raises(UsageError, match="a file"):
        load(DataConfig.parse(name=str(tmp_path / "image.png"), samples=1))


@pytest.mark.parametrize("name", ["cifar10", "tiny-imagenet"])
def test_data_is_looked_for_in_the_cache_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ExhumeError, match=f"in {tmp_path}/exhume/.*exhume data fetch {name}"):
        load(DataConfig.parse(name=name, samples=1))


def test_real_frogs_and_trucks_follow_the_published_protocol() -> None:
    if not (SHARED / "cifar-10-batches-bin").is_dir():
        pytest.skip("needs the real CIFAR-10 in ../shared/data")
    data = load(DataConfig.parse(name="cifar10", samples=20, data_dir=SHARED, norm="keep", dtype="float64"))
    assert data.inputs.shape == (20, 3072)
    assert data.inputs.mean().item() == pytest.approx(0, abs=1e-12)
    assert data.inputs.std().item() == pytest.approx(1, abs=1e-12)
    assert data.labels.tolist() == [-1.0] * 10 + [1.0] * 10
    assert data.description.startswith("cifar10: 20 images 3x32x32 (10 frog, 10 truck), standardised with the subset's")


def test_real_images_of_ten_classes_are_labelled_by_position() -> None:
    if not (SHARED / "cifar-10-batches-bin").is_dir():
        pytest.skip("needs the real CIFAR-10 in ../shared/data")
    classes = tuple(str(number) for number in range(10))
    data = load(DataConfig.parse(name="cifar10", samples=10, classes=classes, data_dir=SHARED, side=8))
    assert data.labels.tolist() == [float(number) for number in range(10)]
    assert data.class_names[6] == "frog"
    assert data.inputs.shape == (10, 192)
