from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from exhume.errors import UsageError
from exhume_papers.figures.law_figures import LawPanel, draw_laws
from exhume_papers.figures.threshold_figures import Curve, ThresholdPanel, draw_thresholds


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def has_colour(path: Path, colour: tuple[int, int, int]) -> bool:
    return bool((np.abs(pixels(path) - np.array(colour)).sum(axis=2) < 30).any())


RED, BLACK, BLUE = (0xC0, 0x20, 0x1C), (0x1D, 0x1D, 0x1B), (0x1F, 0x5F, 0xA8)


def test_each_quantity_has_its_colour(tmp_path: Path) -> None:
    error = Curve("reconstruction error", "error", {20: [1.0, 0.9], 2000: [0.5, 0.6], 20000: [0.0, 0.0]})
    residual = Curve("span residual", "span_residual", {20: [0.4], 20000: [0.0]}, style=1)
    draw_thresholds([ThresholdPanel("d=100, n=20", 20, 100, [error])], tmp_path / "red.png")
    assert has_colour(tmp_path / "red.png", RED)
    assert not has_colour(tmp_path / "red.png", BLUE)
    panels = [
        ThresholdPanel("a", 20, 100, [error, residual]),
        ThresholdPanel("b", 5, 10, [residual], "loss", log_y=True),
    ]
    draw_thresholds(panels, tmp_path / "both.png")
    assert has_colour(tmp_path / "both.png", BLUE)
    assert pixels(tmp_path / "both.png").shape[1] > 1.8 * pixels(tmp_path / "red.png").shape[1]


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    curve = Curve("training loss", "training_loss", {1: [1.0], 10: [0.1]}, shade=0.5)
    for name in ("a.png", "b.png"):
        draw_thresholds([ThresholdPanel("t", 1, 10, [curve])], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected at least one curve"):
        draw_thresholds([ThresholdPanel("t", 1, 10)], tmp_path / "none.png")
    assert list(tmp_path.iterdir()) == []


def test_a_law_is_drawn_beside_the_points(tmp_path: Path) -> None:
    panel = LawPanel("t", "p", "y", {"a": [(1.0, 1.0), (10.0, 9.0)], "b": [(1.0, 2.0)]}, slope=1.0)
    draw_laws([panel], tmp_path / "law.png")
    assert has_colour(tmp_path / "law.png", RED)
    assert has_colour(tmp_path / "law.png", BLUE)
