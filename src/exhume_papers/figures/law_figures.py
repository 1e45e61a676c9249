"""Measured numbers against a law, on log-log axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from exhume.report.figure_file import save_figure

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
    figure = Figure(figsize=(4.4 * len(panels), 3.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for position, (label, points) in enumerate(panel.series.items()):
            xs, ys = zip(*points, strict=True)
            colour = COLOURS[position % len(COLOURS)]
            axes.plot(xs, ys, marker="o", markersize=3, linewidth=1.2, color=colour, label=label)
            if panel.slope is not None:
                law = [ys[0] * (x / xs[0]) ** panel.slope for x in xs]
                axes.plot(xs, law, linestyle="--", linewidth=0.9, color=colour)
        axes.set(xscale="log", yscale="log", xlabel=panel.xlabel, ylabel=panel.ylabel)
        axes.set_title(panel.title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7)
    save_figure(figure, path)
