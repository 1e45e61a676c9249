from pathlib import Path

import pytest
import torch
from PIL import Image

from exhume.errors import ExhumeError, UsageError
from exhume_papers.data.tiny_imagenet import load_tiny_imagenet

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two classes, out of order in wnids.txt, with images whose red channel tells them apart."""
    root = tmp_path / "tiny-imagenet-200"
    for wnid, first in (("n02", 0), ("n01", 100)):
        images = root / "train" / wnid / "images"
        images.mkdir(parents=True)
        for position, number in enumerate([0, 2, 10]):
            Image.new("RGB", (64, 64), (first + 20 * position, 0, 0)).save(images / f"{wnid}_{number}.JPEG")
    (root / "wnids.txt").write_text("n02\nn01\n")
    return tmp_path


def reds(pixels: torch.Tensor) -> list[int]:
    return [round(value * 255) for value in pixels[:, 0].mean(dim=(1, 2)).tolist()]


def test_classes_are_numbered_by_the_sorted_list_and_images_by_plain_name_order(data_dir: Path) -> None:
    images = load_tiny_imagenet(data_dir, ["1", "n01"], [3, 2])
    assert images.class_names == ("n02", "n01")
    assert images.class_index.tolist() == [0, 0, 0, 1, 1]
    # Plain order puts n02_10 before n02_2.
    assert reds(images.pixels) == pytest.approx([0, 40, 20, 100, 140], abs=3)
    assert images.pixels.shape == (5, 3, 64, 64)


def test_grayscale_becomes_rgb(data_dir: Path) -> None:
    Image.new("L", (64, 64), 50).save(data_dir / "tiny-imagenet-200/train/n01/images/n01_0.JPEG")
    pixels = load_tiny_imagenet(data_dir, ["n01"], [1]).pixels
    assert pixels.shape == (1, 3, 64, 64)
    assert torch.equal(pixels[:, 0], pixels[:, 2])


def refused(data_dir: Path, kind: type[ExhumeError], classes: list[str], count: int = 1) -> str:
    with pytest.raises(ExhumeError) as caught:
        load_tiny_imagenet(data_dir, classes, [count] * len(classes))
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "expected" in message
    assert "found" in message
    assert "\n" not in message
    return message


def test_a_missing_folder_says_where_it_looked_and_how_to_get_it(tmp_path: Path) -> None:
    message = refused(tmp_path, ExhumeError, ["0"])
    assert str(tmp_path / "tiny-imagenet-200") in message
    assert "exhume data fetch tiny-imagenet" in message


@pytest.mark.parametrize("content", [None, "\n"])
def test_a_missing_or_empty_class_list_is_refused(data_dir: Path, content: str | None) -> None:
    path = data_dir / "tiny-imagenet-200" / "wnids.txt"
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert "wnids.txt" in refused(data_dir, ExhumeError, ["0"])


@pytest.mark.parametrize("choice", ["2", "n03", "frog"])
def test_an_unknown_class_lists_the_known(data_dir: Path, choice: str) -> None:
    assert "n01, n02" in refused(data_dir, UsageError, [choice])


def test_a_listed_class_without_folder_is_refused(data_dir: Path) -> None:
    with (data_dir / "tiny-imagenet-200" / "wnids.txt").open("a") as file:
        file.write("n03\n")
    assert "class 'n03'" in refused(data_dir, ExhumeError, ["n03"])


def test_too_few_images_says_how_many_there_are(data_dir: Path) -> None:
    assert "expected 4 images of class 'n01', found 3" in refused(data_dir, UsageError, ["n01"], count=4)


@pytest.mark.parametrize("keep", [0, 10, 300])
def test_a_corrupt_image_is_named(data_dir: Path, keep: int) -> None:
    path = data_dir / "tiny-imagenet-200/train/n01/images/n01_0.JPEG"
    path.write_bytes(path.read_bytes()[:keep])
    assert str(path) in refused(data_dir, ExhumeError, ["n01"])


def test_an_image_of_another_size_is_named(data_dir: Path) -> None:
    Image.new("RGB", (32, 64)).save(data_dir / "tiny-imagenet-200/train/n01/images/n01_0.JPEG")
    assert "found 32x64" in refused(data_dir, ExhumeError, ["n01"])


def test_the_real_classes_2_and_116_are_the_published_ones() -> None:
    if not (SHARED / "tiny-imagenet-200").is_dir():
        pytest.skip("needs the real Tiny-ImageNet in ../shared/data")
    images = load_tiny_imagenet(SHARED, ["2", "116"], [3, 3])
    assert images.class_names == ("n01641577", "n03670208")
    with Image.open(SHARED / "tiny-imagenet-200/train/n01641577/images/n01641577_10.JPEG") as third:
        red, green, blue = third.convert("RGB").getpixel((5, 7))  # type: ignore[misc]
    assert (images.pixels[2, :, 7, 5] * 255).round().tolist() == [red, green, blue]
