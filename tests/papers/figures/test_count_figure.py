"""The figure of candidates for several numbers of samples."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from exhume.errors import UsageError
from exhume_papers.figures.count_figure import DOTS_PER_INCH, GAP, LABEL_WIDTH, MARGIN, MARK, Band, draw_counts


def test_pictures_stand_in_their_places_and_marked_ones_have_a_frame(tmp_path: Path) -> None:
    pictures = torch.tensor([0.0, 0.5, 1.0])[:, None, None, None].expand(3, 1, 4, 4)
    bands = [Band("true", pictures), Band("told 2", pictures[1:], torch.tensor([False, True]))]
    draw_counts(bands, tmp_path / "a.png", columns=2)
    shown = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    side = 72
    middle = MARGIN + side // 2, LABEL_WIDTH + side // 2
    assert shown[middle].tolist() == [0, 0, 0]
    assert shown[middle[0], middle[1] + side + GAP].tolist() == [128, 128, 128]
    frame = np.all(shown == MARK, axis=2)
    assert frame.sum() == side**2 - (side - 6) ** 2
    assert shown.shape[1] == LABEL_WIDTH + 2 * side + GAP + MARGIN
    assert DOTS_PER_INCH == 100


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one band"):
        draw_counts([], tmp_path / "a.png")
    with pytest.raises(UsageError, match="at least one picture"):
        draw_counts([Band("none", torch.zeros(0, 1, 2, 2))], tmp_path / "a.png")
