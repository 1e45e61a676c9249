from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from exhume.data.public_images import load_public_rows
from exhume.errors import ExhumeError, UsageError


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def noise(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3))


def test_images_of_any_size_become_rows_of_one_shape_and_norm(tmp_path: Path) -> None:
    write(tmp_path / "a.png", noise(16, 16, 0))
    write(tmp_path / "class" / "b.png", noise(9, 30, 1))
    write(tmp_path / "class" / "c.png", noise(4, 4, 2)[:, :, 0])
    rows = load_public_rows(tmp_path, (3, 8, 8))
    assert rows.shape == (3, 192)
    torch.testing.assert_close(rows.norm(dim=1), torch.full((3,), 192**0.5, dtype=rows.dtype))


def test_an_image_of_the_right_size_is_left_as_it_is(tmp_path: Path) -> None:
    pixels = [noise(8, 8, seed) for seed in (3, 4)]
    for number, image in enumerate(pixels):
        write(tmp_path / f"{number}.png", image)
    rows = load_public_rows(tmp_path, (3, 8, 8))
    exact = torch.from_numpy(np.stack(pixels).transpose(0, 3, 1, 2) / 255.0).flatten(start_dim=1)
    centred = exact - exact.mean()
    torch.testing.assert_close(rows, centred * (192**0.5 / centred.norm(dim=1, keepdim=True)))


def test_a_long_image_is_cut_around_its_centre(tmp_path: Path) -> None:
    wide = np.zeros((8, 24, 3))
    wide[:, 8:16] = noise(8, 8, 5)
    write(tmp_path / "a.png", wide)
    write(tmp_path / "b.png", wide[:, 8:16])
    rows = load_public_rows(tmp_path, (3, 8, 8))
    torch.testing.assert_close(rows[0], rows[1])


def test_gray_images_are_made_of_colours_where_gray_ones_are_wanted(tmp_path: Path) -> None:
    for seed in (6, 7):
        write(tmp_path / f"{seed}.png", noise(8, 8, seed))
    assert load_public_rows(tmp_path, (1, 8, 8)).shape == (2, 64)


def test_too_few_and_blank_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 2 images"):
        load_public_rows(tmp_path, (3, 8, 8))
    for name in "ab":
        write(tmp_path / f"{name}.png", np.full((8, 8, 3), 9))
    with pytest.raises(ExhumeError, match="not blank"):
        load_public_rows(tmp_path, (3, 8, 8))
    with pytest.raises(UsageError, match="1 or 3 channels"):
        load_public_rows(tmp_path, (2, 8, 8))
