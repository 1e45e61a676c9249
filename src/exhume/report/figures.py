"""Figures as PNG files: true images above what was recovered, candidates alone, the loss.

Drawn on figures of their own, never through pyplot, so that nothing global is touched. Pictures are enlarged by a whole
factor and land on whole pixels: one value of the data is one square of the figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from exhume.errors import UsageError
from exhume.report.figure_file import save_figure
from exhume.report.pictures import as_array

DOTS_PER_INCH = 100
PICTURE_PIXELS = 112
TALLEST_PIXELS = 20_000
GAP, BAND_GAP, MARGIN, LABEL_WIDTH = 6, 18, 16, 72
INK, FAINT, ACCENT = "#24211d", "#8a837a", "#9c4a1a"
SMALLEST_LOSS = 1e-18


def draw_pairs(truth: Float[Tensor, "n c h w"], found: Float[Tensor, "m c h w"], path: Path, columns: int = 10) -> None:
    """Odd rows show the true images, even rows what was recovered of them; found[i] belongs to truth[i]."""
    if truth.shape[0] != found.shape[0]:
        raise UsageError(f"expected one recovered image for each of {len(truth)} true images, found {len(found)}")
    _draw_bands([("true", truth), ("recovered", found)], path, columns)


def draw_candidates(found: Float[Tensor, "m c h w"], path: Path, columns: int = 10) -> None:
    """The candidates in their order, where there is no truth to put beside them."""
    _draw_bands([("candidates", found)], path, columns)


def draw_trace(trace: list[dict[str, float]], path: Path, held_out_loss: float | None = None) -> None:
    """The loss against iterations on a log scale, with passes over the weights on the upper axis."""
    if not trace:
        raise UsageError("expected a trace of at least one iteration, found none")
    iterations = np.array([line["iteration"] for line in trace])
    figure = Figure(figsize=(7.2, 4.2), dpi=1.5 * DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.11, 0.13, 0.85, 0.73))
    losses = np.maximum([line["loss"] for line in trace], SMALLEST_LOSS)
    axes.plot(
        iterations, losses, color=ACCENT, linewidth=1.6, marker="o" if len(trace) == 1 else None, label="weights used"
    )
    if held_out_loss is not None:
        level = max(held_out_loss, SMALLEST_LOSS)
        axes.axhline(level, color=INK, linewidth=1.2, linestyle=(0, (5, 4)), label="weights held out, at the end")
    axes.set_yscale("log")
    axes.set_xlabel("iterations", color=INK)
    axes.set_ylabel("share of the weights not explained", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.6)
    _quiet(axes, "top", "right")
    axes.legend(frameon=False, labelcolor=INK)
    if "passes" in trace[0] and len(trace) > 1:
        _add_passes(axes, iterations, np.array([line["passes"] for line in trace]))
    save_figure(figure, path)


def _add_passes(axes: Axes, iterations: np.ndarray, passes: np.ndarray) -> None:
    ticks = MaxNLocator(nbins=7, integer=True).tick_values(passes[0], passes[-1])
    ticks = ticks[(ticks >= passes[0]) & (ticks <= passes[-1])]
    upper = axes.twiny()
    upper.set_xlim(axes.get_xlim())
    upper.set_xticks(np.interp(ticks, passes, iterations), [f"{tick:,.0f}" for tick in ticks])
    upper.set_xlabel("passes over the weights", color=FAINT)
    upper.tick_params(colors=FAINT)
    _quiet(upper, "right", "bottom", "left")
    upper.spines["top"].set_color(FAINT)


def _quiet(axes: Axes, *sides: str) -> None:
    for side in sides:
        axes.spines[side].set_visible(False)


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


def _draw_bands(bands: Sequence[tuple[str, Float[Tensor, "n c h w"]]], path: Path, columns: int) -> None:
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
    figure = Figure(figsize=(across / DOTS_PER_INCH, tall / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    figure.figimage(canvas, resize=False)
    for block in range(layout.blocks):
        for band, (name, _) in enumerate(bands):
            _label(figure, layout, layout.top(block, band), name, INK if band == 0 else ACCENT)
    save_figure(figure, path)


def _lay_out(bands: Sequence[tuple[str, Float[Tensor, "n c h w"]]], count: int, columns: int) -> _Layout:
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
