"""Figures as PNG files: true images above what was recovered, candidates alone, the loss. Never through pyplot."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from exhume.errors import UsageError
from exhume.picture_grid import ACCENT, DOTS_PER_INCH, INK, picture_grid
from exhume.report.figure_file import save_figure

FAINT = "#8a837a"
SMALLEST_LOSS = 1e-18


def draw_pairs(truth: Float[Tensor, "n c h w"], found: Float[Tensor, "m c h w"], path: Path, columns: int = 10) -> None:
    """Odd rows show the true images, even rows what was recovered of them; found[i] belongs to truth[i]."""
    if truth.shape[0] != found.shape[0]:
        raise UsageError(f"expected one recovered image for each of {len(truth)} true images, found {len(found)}")
    save_figure(picture_grid([("true", truth), ("recovered", found)], columns), path)


def draw_candidates(found: Float[Tensor, "m c h w"], path: Path, columns: int = 10) -> None:
    """The candidates in their order, where there is no truth to put beside them."""
    save_figure(picture_grid([("candidates", found)], columns), path)


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
