"""Candidates for several numbers of samples, one band each: blends below the true number, copies above it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from exhume.errors import UsageError
from exhume.picture_grid import as_array
from exhume.report.figure_file import save_figure

DOTS_PER_INCH = 100
PICTURE_PIXELS, FRAME, GAP, BAND_GAP, MARGIN, LABEL_WIDTH = 72, 3, 6, 22, 16, 110
INK, MARK = "#24211d", (0x9C, 0x4A, 0x1A)


@dataclass(frozen=True, eq=False, repr=False)
class Band:
    """Pictures under one label; those that are marked get a frame."""

    label: str
    pictures: Float[Tensor, "m c h w"]
    marked: Bool[Tensor, " m"] | None = None


def draw_counts(bands: Sequence[Band], path: Path, columns: int = 10) -> None:
    """Bands from top to bottom, each in rows of so many pictures."""
    if not bands or columns < 1 or any(len(band.pictures) == 0 for band in bands):
        raise UsageError("expected at least one band, each of at least one picture, and one column, found fewer")
    factor = max(1, round(PICTURE_PIXELS / max(*bands[0].pictures.shape[2:])))
    blocks = [_montage(band, columns, factor) for band in bands]
    width = LABEL_WIDTH + max(block.shape[1] for block in blocks) + MARGIN
    height = 2 * MARGIN + sum(len(block) + BAND_GAP for block in blocks) - BAND_GAP
    canvas = np.full((height, width, 3), 255, dtype=np.uint8)
    figure = Figure(figsize=(width / DOTS_PER_INCH, height / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    top = MARGIN
    for band, block in zip(bands, blocks, strict=True):
        canvas[top : top + len(block), LABEL_WIDTH : LABEL_WIDTH + block.shape[1]] = block
        x, y = (LABEL_WIDTH - 10) / width, 1 - (top + len(block) / 2) / height
        figure.text(x, y, band.label, ha="right", va="center", fontsize=9, color=INK)
        top += len(block) + BAND_GAP
    figure.figimage(canvas, resize=False)
    save_figure(figure, path)


def _montage(band: Band, columns: int, factor: int) -> np.ndarray:
    count = len(band.pictures)
    height, width = (factor * side for side in band.pictures.shape[2:])
    rows, across = -(-count // columns), min(columns, count)
    block = np.full((rows * (height + GAP) - GAP, across * (width + GAP) - GAP, 3), 255, dtype=np.uint8)
    for index, picture in enumerate(band.pictures):
        row, column = divmod(index, columns)
        top, left = row * (height + GAP), column * (width + GAP)
        enlarged = np.kron((as_array(picture) * 255).round(), np.ones((factor, factor, 1))).astype(np.uint8)
        block[top : top + height, left : left + width] = enlarged
        if band.marked is not None and bool(band.marked[index]):
            framed = block[top : top + height, left : left + width]
            framed[:FRAME], framed[-FRAME:], framed[:, :FRAME], framed[:, -FRAME:] = MARK, MARK, MARK, MARK
    return block
