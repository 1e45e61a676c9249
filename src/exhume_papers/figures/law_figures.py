"""Measured numbers against a law, on log-log axes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from exhume.report.figure_file import save_figure

PER_ROW = 3
"""More side by side are too small to read in a page."""
DECADES = 30
"""How far an axis has to reach for ticks at powers of ten alone."""
COLOURS = ("#c0201c", "#1f5fa8", "#1d1d1b", "#7a6a2f")


@dataclass(frozen=True)
class LawPanel:
    """Points (x, y) of several series; the dashed line has the slope of the law and passes the first point."""

    title: str
    xlabel: str
    ylabel: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    slope: float | None = None


def draw_laws(panels: Sequence[LawPanel], path: Path) -> None:
    rows, columns = math.ceil(len(panels) / PER_ROW), min(len(panels), PER_ROW)
    figure = Figure(figsize=(3.6 * columns, 3.2 * rows), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, columns, squeeze=False).flatten()
    for empty in places[len(panels) :]:
        empty.remove()
    for axes, panel in zip(places, panels, strict=False):
        for position, (label, points) in enumerate(panel.series.items()):
            xs, ys = zip(*points, strict=True)
            colour = COLOURS[position % len(COLOURS)]
            axes.plot(xs, ys, marker="o", markersize=3, linewidth=1.2, color=colour, label=label)
            if panel.slope is not None:
                law = [ys[0] * (x / xs[0]) ** panel.slope for x in xs]
                axes.plot(xs, law, linestyle="--", linewidth=0.9, color=colour)
        axes.set(xscale="log", yscale="log", xlabel=panel.xlabel, ylabel=panel.ylabel)
        across = sorted({x for points in panel.series.values() for x, _ in points})
        if across[-1] < DECADES * across[0]:  # labels of all minor ticks run into each other
            axes.set_xticks(across, [f"{x:g}" for x in across])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_title(panel.title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7)
    save_figure(figure, path)
