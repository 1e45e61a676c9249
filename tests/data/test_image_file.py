from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from exhume.data.image_file import as_rgb, read_image
from exhume.errors import ExhumeError


@pytest.mark.parametrize(
    ("mode", "colour", "pixels"),
    [
        ("L", 51, [0.2]),
        ("1", 1, [1.0]),
        ("LA", (51, 0), [0.2]),
        ("RGB", (255, 51, 0), [1.0, 0.2, 0.0]),
        ("RGBA", (255, 51, 0, 7), [1.0, 0.2, 0.0]),
    ],
)
def test_modes_become_one_or_three_channels(
    tmp_path: Path, mode: str, colour: int | tuple[int, ...], pixels: list[float]
) -> None:
    Image.new(mode, (4, 2), colour).save(tmp_path / "image.png")
    read = read_image(tmp_path / "image.png")
    assert read.shape == (len(pixels), 2, 4)
    assert read[:, 1, 3].tolist() == pytest.approx(pixels)


def test_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 32768, 65535]], np.uint16)).save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png").flatten().tolist() == pytest.approx([0, 32768 / 65535, 1])


@pytest.mark.parametrize("array", [np.array([[0.5]], np.float32), np.array([[70000]], np.int32)])
def test_unbounded_pixels_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    Image.fromarray(array).save(tmp_path / "raw.tiff")
    with pytest.raises(ExhumeError, match=r"expected 8 or 16 bits a pixel in .*raw\.tiff, found"):
        read_image(tmp_path / "raw.tiff")


def test_the_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("L", (4, 2), 0)
    image.putpixel((0, 0), 255)
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise
    image.save(tmp_path / "turned.png", exif=exif)
    read = read_image(tmp_path / "turned.png")
    assert read.shape == (1, 4, 2)
    assert read[0, 0, 1] == 1


def test_a_palette_becomes_its_colours(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2), (255, 0, 0)).quantize().save(tmp_path / "palette.png")
    assert read_image(tmp_path / "palette.png")[:, 0, 0].tolist() == [1.0, 0.0, 0.0]


def test_an_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (2, 2), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "moving.gif")[:, 0, 0].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("content", [b"", b"not an image"])
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text.png").write_bytes(content)
    with pytest.raises(ExhumeError, match=r"expected an image of a known format in .*text\.png, found something else"):
        read_image(tmp_path / "text.png")


def test_another_format_than_asked_for_is_refused(tmp_path: Path) -> None:
    Image.new("L", (2, 2)).save(tmp_path / "image.png")
    with pytest.raises(ExhumeError, match="expected an image of a JPEG format"):
        read_image(tmp_path / "image.png", formats=("JPEG",))


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "torn.png"
    Image.effect_noise((64, 64), 50).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ExhumeError, match=r"expected a readable image in .*torn\.png, found: "):
        read_image(path)


def test_gray_is_repeated_in_three_channels(tmp_path: Path) -> None:
    Image.new("L", (2, 2), 51).save(tmp_path / "gray.png")
    assert as_rgb(read_image(tmp_path / "gray.png"))[:, 0, 0].tolist() == pytest.approx([0.2] * 3)
