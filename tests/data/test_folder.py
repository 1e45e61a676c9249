from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from exhume.data.config import DataConfig
from exhume.data.folder import load_folder
from exhume.data.image_set import ImageSet
from exhume.errors import UsageError


def save(path: Path, gray: int, size: tuple[int, int] = (4, 4), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, gray if mode == "L" else (gray, 0, 0)).save(path)


def load(folder: Path, samples: int, **fields: object) -> ImageSet:
    return load_folder(folder, DataConfig.parse(name=str(folder), samples=samples, **fields))


def grays(images: ImageSet) -> list[int]:
    return [round(value * 255) for value in images.pixels[:, 0, 0, 0].tolist()]


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    for number in range(3):
        save(tmp_path / "zebra" / f"{number}.png", 10 + number)
        save(tmp_path / "ant" / f"{number}.png", 20 + number)
        save(tmp_path / "owl" / f"{number}.png", 30 + number)
    return tmp_path


def test_a_flat_folder_is_read_in_name_order(tmp_path: Path) -> None:
    for name, gray in (("b.png", 2), ("a.bmp", 1), ("c.PNG", 3)):
        save(tmp_path / name, gray)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "._a.png").write_bytes(b"left behind by a file manager")
    images = load(tmp_path, 3)
    assert grays(images) == [1, 2, 3]
    assert images.class_names == ()
    assert images.class_index.tolist() == [-1, -1, -1]
    assert images.pixels.shape == (3, 1, 4, 4)
    assert grays(load(tmp_path, 2)) == [1, 2]


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "webp", "gif", "tif", "tiff"])
def test_every_promised_format_is_read(tmp_path: Path, suffix: str) -> None:
    save(tmp_path / f"image.{suffix}", 200)
    assert grays(load(tmp_path, 1)) == pytest.approx([200], abs=2)


def test_subfolders_are_classes_in_name_order(classes: Path) -> None:
    images = load(classes, 4)
    assert images.class_names == ("ant", "owl", "zebra")
    assert images.class_index.tolist() == [0, 0, 1, 2]
    assert grays(images) == [20, 21, 30, 10]


def test_classes_can_be_chosen_and_counted(classes: Path) -> None:
    (classes / "empty").mkdir()
    images = load(classes, 4, classes=("zebra", "ant"), per_class=(1, 3))
    assert images.class_names == ("zebra", "ant")
    assert grays(images) == [10, 20, 21, 22]


def test_one_coloured_image_makes_all_of_them_rgb(tmp_path: Path) -> None:
    save(tmp_path / "a.png", 51)
    save(tmp_path / "b.png", 51, mode="RGB")
    pixels = load(tmp_path, 2).pixels
    assert pixels.shape == (2, 3, 4, 4)
    assert pixels[:, :, 0, 0].flatten().tolist() == pytest.approx([0.2, 0.2, 0.2, 0.2, 0, 0])


def test_a_side_brings_images_of_different_sizes_together(tmp_path: Path) -> None:
    save(tmp_path / "a.png", 1, size=(4, 8))
    save(tmp_path / "b.png", 2, size=(12, 4))
    images = load(tmp_path, 2, side=2)
    assert images.pixels.shape == (2, 1, 2, 2)
    assert grays(images) == [1, 2]


def test_different_sizes_name_two_files_and_a_way_out(tmp_path: Path) -> None:
    save(tmp_path / "a.png", 1, size=(4, 8))
    save(tmp_path / "b.png", 2, size=(12, 4))
    with pytest.raises(UsageError) as caught:
        load(tmp_path, 2)
    assert f"{tmp_path / 'a.png'} with 4x8 and {tmp_path / 'b.png'} with 12x4" in str(caught.value)
    assert "a side that divides 4" in str(caught.value)
    save(tmp_path / "b.png", 2, size=(5, 5))
    with pytest.raises(UsageError, match="no side divides all of them"):
        load(tmp_path, 2)


def make_empty(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


def make_flat(folder: Path) -> None:
    save(folder / "a.png", 1)


def make_classes(folder: Path) -> None:
    save(folder / "ant" / "a.png", 1)
    save(folder / "bee" / "a.png", 1)


def make_mixed(folder: Path) -> None:
    make_flat(folder)
    make_classes(folder)


@pytest.mark.parametrize(
    ("make", "fields", "expected", "found"),
    [
        (make_empty, {"samples": 1}, "images (.png", "none"),
        (make_flat, {"samples": 2}, "2 images", "1"),
        (make_flat, {"samples": 1, "classes": ("ant",)}, "no classes", "ant"),
        (make_flat, {"samples": 1, "per_class": (1,)}, "no classes", "(1,)"),
        (make_flat, {"samples": 1, "side": 3}, "divides 4x4 images (1, 2, 4)", "3 in "),
        (make_classes, {"samples": 3}, "2 images of class 'ant'", "1"),
        (make_classes, {"samples": 1, "classes": ("cow",)}, "(ant, bee)", "'cow'"),
        (make_classes, {"samples": 2, "classes": ("ant", "ant")}, "each class once", "'ant' twice"),
        (make_classes, {"samples": 1, "per_class": (1,)}, "each of the 2 classes", "1"),
        (make_mixed, {"samples": 1}, "either", "a.png beside the class 'ant'"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], None], fields: dict[str, object], expected: str, found: str
) -> None:
    make(tmp_path)
    config = DataConfig.parse(name=str(tmp_path), **fields)
    with pytest.raises(UsageError) as caught:
        load_folder(tmp_path, config)
    message = str(caught.value)
    assert "\n" not in message
    assert expected in message.partition("found")[0]
    assert found in message.partition("found")[2]
