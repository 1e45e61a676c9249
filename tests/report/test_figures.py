import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from exhume.errors import UsageError
from exhume.picture_grid import LABEL_WIDTH, MARGIN, PICTURE_PIXELS
from exhume.report.figures import draw_candidates, draw_pairs, draw_trace


def _pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


@pytest.mark.parametrize("channels", [1, 3])
def test_every_value_of_a_picture_is_one_crisp_square_of_the_figure(channels: int, tmp_path: Path) -> None:
    truth = torch.randint(0, 256, (3, channels, 8, 8), generator=torch.Generator().manual_seed(0)) / 255
    draw_pairs(truth, 1 - truth, tmp_path / "pairs.png", columns=2)
    figure = _pixels(tmp_path / "pairs.png")
    factor = PICTURE_PIXELS // 8
    corner = figure[MARGIN : MARGIN + PICTURE_PIXELS, LABEL_WIDTH : LABEL_WIDTH + PICTURE_PIXELS]
    expected = (truth[0].expand(3, -1, -1).permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    np.testing.assert_array_equal(corner, expected.repeat(factor, axis=0).repeat(factor, axis=1))


def test_a_recovered_image_is_below_its_original(tmp_path: Path) -> None:
    draw_pairs(torch.zeros(2, 1, 4, 4), torch.full((2, 1, 4, 4), 0.5), tmp_path / "pairs.png")
    column = _pixels(tmp_path / "pairs.png")[:, LABEL_WIDTH + 2, 0].tolist()
    assert [value for value in dict.fromkeys(column) if value != 255] == [0, 128]


def test_more_images_than_columns_go_to_further_rows(tmp_path: Path) -> None:
    for count in (2, 3):
        draw_candidates(torch.rand(count, 1, 4, 4), tmp_path / f"{count}.png", columns=2)
    two, three = _pixels(tmp_path / "2.png"), _pixels(tmp_path / "3.png")
    assert three.shape[1] == two.shape[1]
    assert three.shape[0] > two.shape[0] + 100


def test_the_trace_is_drawn_with_and_without_passes_and_survives_a_loss_of_zero(tmp_path: Path) -> None:
    lines = [{"iteration": float(i), "loss": 10.0**-i, "passes": 2.0 * i} for i in range(4)]
    draw_trace(lines, tmp_path / "a.png", held_out_loss=1e-2)
    draw_trace([{"iteration": 0.0, "loss": 0.0}], tmp_path / "b.png")
    draw_trace(lines, tmp_path / "c.png")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 3


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    draw_trace([{"iteration": 0.0, "loss": 1.0}], tmp_path / "a.png")
    draw_candidates(torch.rand(1, 1, 4, 4), tmp_path / "b.png")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one image"):
        draw_candidates(torch.zeros(0, 1, 4, 4), tmp_path / "a.png")
    with pytest.raises(UsageError, match="for each of 2 true images, found 1"):
        draw_pairs(torch.zeros(2, 1, 4, 4), torch.zeros(1, 1, 4, 4), tmp_path / "a.png")
    with pytest.raises(UsageError, match="at least one iteration"):
        draw_trace([], tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
