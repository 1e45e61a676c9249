"""Pictures on a figure: rows of numbers as pictures, side by side and below each other.

Drawn on figures of their own, never through pyplot, so that nothing global is touched. Pictures are enlarged by a whole
factor and land on whole pixels: one value of the data is one square of the figure.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from exhume.errors import UsageError

DOTS_PER_INCH = 100
PICTURE_PIXELS = 112
TALLEST_PIXELS = 20_000
GAP, BAND_GAP, MARGIN, LABEL_WIDTH = 6, 18, 16, 72
INK, ACCENT = "#24211d", "#9c4a1a"
MOST_PICTURES = 40
Bands = Sequence[tuple[str, Float[Tensor, "n c h w"]]]


def require_pictures(shape: tuple[int, int, int] | None, d: int) -> tuple[int, int, int]:
    """The shape of rows that are pictures; one line where they are none."""
    if shape is None:
        raise UsageError(
            f"expected pictures to plot, found rows of {d} numbers; give image_shape=(channels, height, width)"
        )
    if math.prod(shape) != d:
        raise UsageError(f"expected an image shape of {d} numbers, found {tuple(shape)}")
    return shape


def from_rows(rows: Float[Tensor, "m d"], image_shape: tuple[int, int, int]) -> Float[Tensor, "m c h w"]:
    """Rows of unknown scale as pictures: each is stretched from its smallest to its largest value."""
    low, high = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)
    return ((rows - low) / torch.where(high > low, high - low, 1.0)).reshape(-1, *image_shape)


def as_array(picture: Float[Tensor, "c h w"]) -> np.ndarray:
    """Height × width × 3 in [0, 1]; a picture that is neither gray nor RGB is shown as the mean of its channels."""
    shown = picture if len(picture) in (1, 3) else picture.mean(dim=0, keepdim=True)
    return shown.detach().cpu().double().clamp(0, 1).expand(3, -1, -1).permute(1, 2, 0).numpy()


@dataclass(frozen=True)
class _Layout:
    """Where things are, in pixels. A block is one row of every band, so a true image and what was recovered of it."""

    factor: int
    height: int
    width: int
    columns: int
    blocks: int
    bands: int

    @property
    def canvas(self) -> tuple[int, int]:
        across = LABEL_WIDTH + self.columns * (self.width + GAP) - GAP + MARGIN
        return 2 * MARGIN + self.blocks * self.block_height - BAND_GAP, across

    @property
    def block_height(self) -> int:
        return self.bands * (self.height + GAP) - GAP + BAND_GAP

    def top(self, block: int, band: int) -> int:
        return MARGIN + block * self.block_height + band * (self.height + GAP)

    def left(self, column: int) -> int:
        return LABEL_WIDTH + column * (self.width + GAP)


class PictureGrid(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        FigureCanvasAgg(self).print_png(file)
        return file.getvalue()


def picture_grid(bands: Bands, columns: int = 10) -> PictureGrid:
    """Pictures side by side; those of further bands below the ones that they belong to."""
    count = len(bands[0][1])
    if count == 0 or columns < 1:
        raise UsageError(f"expected at least one image and one column, found {count} images and {columns} columns")
    layout = _lay_out(bands, count, min(columns, count))
    canvas = np.full((*layout.canvas, 3), 255, dtype=np.uint8)
    for band, (_, pictures) in enumerate(bands):
        for index, picture in enumerate(pictures):
            block, column = divmod(index, layout.columns)
            top, left = layout.top(block, band), layout.left(column)
            enlarged = _enlarge((as_array(picture) * 255).round(), layout)
            canvas[top : top + layout.height, left : left + layout.width] = enlarged
    tall, across = layout.canvas
    figure = PictureGrid(figsize=(across / DOTS_PER_INCH, tall / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    figure.figimage(canvas, resize=False)
    for block in range(layout.blocks):
        for band, (name, _) in enumerate(bands):
            _label(figure, layout, layout.top(block, band), name, INK if band == 0 else ACCENT)
    return figure


def _lay_out(bands: Bands, count: int, columns: int) -> _Layout:
    """The finest grid gives the pixels of a picture; coarser ones (blurred pictures) are enlarged to the same size."""
    height = max(pictures.shape[2] for _, pictures in bands)
    width = max(pictures.shape[3] for _, pictures in bands)
    blocks = -(-count // columns)
    tallest = TALLEST_PIXELS // (blocks * len(bands))
    factor = max(1, min(round(PICTURE_PIXELS / max(height, width)), tallest // height))
    return _Layout(factor, height * factor, width * factor, columns, blocks, len(bands))


def _enlarge(picture: np.ndarray, layout: _Layout) -> np.ndarray:
    rows = np.arange(layout.height) * picture.shape[0] // layout.height
    columns = np.arange(layout.width) * picture.shape[1] // layout.width
    return picture[np.ix_(rows, columns)]


def _label(figure: Figure, layout: _Layout, top: int, name: str, colour: str) -> None:
    tall, across = layout.canvas
    x, y = (LABEL_WIDTH - 8) / across, 1 - (top + layout.height / 2) / tall
    figure.text(x, y, name, ha="right", va="center", fontsize=8, color=colour)
