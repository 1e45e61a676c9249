"""Figures in the paper's form: something against the number of parameters, with both thresholds.

p on a log scale, lines at p = n and p = dn, mean and one standard deviation over the seeds; the reconstruction error in
red, the training loss in black, the span residual in blue.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from exhume.errors import UsageError
from exhume.report.figure_file import save_figure

COLOURS = {"error": "#c0201c", "training_loss": "#1d1d1b", "span_residual": "#1f5fa8", "other": "#5b5b5b"}
NAMES = {"error": "reconstruction error", "training_loss": "training loss", "span_residual": "span residual"}
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Curve:
    """Values over the seeds at each p. `shade` from 0 (full colour) to 1 (light), `style` tells attacks apart."""

    label: str
    quantity: str
    values: Mapping[int, Sequence[float]]
    style: int = 0
    shade: float = 0.0


@dataclass(frozen=True)
class ThresholdPanel:
    title: str
    n: int
    d: int
    curves: Sequence[Curve] = field(default_factory=tuple)
    ylabel: str = ""
    log_y: bool = False


def draw_thresholds(panels: Sequence[ThresholdPanel], path: Path) -> None:
    if not panels or not any(panel.curves for panel in panels):
        raise UsageError("expected at least one curve to draw, found none")
    figure = Figure(figsize=(4.6 * len(panels), 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel)
    save_figure(figure, path)


def _draw_panel(axes: Axes, panel: ThresholdPanel) -> None:
    for curve in panel.curves:
        _draw_curve(axes, curve, panel.log_y)
    for p, name in ((panel.n, "p = n"), (panel.d * panel.n, "p = dn")):
        axes.axvline(p, color="#8a837a", linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            name, (p, 1.0), xycoords=("data", "axes fraction"), xytext=(2, -9), textcoords="offset points", fontsize=7
        )
    axes.set(xscale="log", xlabel="number of parameters p", ylabel=panel.ylabel)
    if panel.log_y:
        axes.set_yscale("log")
    else:
        bottom, top = axes.get_ylim()
        if not panel.ylabel:  # errors: 1 is next to nothing known, and small ones shall look small
            top = max(top, 1.0)
        axes.set_ylim(min(-0.03 * top, bottom), top)
    axes.set_title(panel.title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    # below: inside, it would lie on some curve
    axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def _draw_curve(axes: Axes, curve: Curve, log_y: bool) -> None:
    ps = sorted(p for p, values in curve.values.items() if values)
    means = [statistics.fmean(curve.values[p]) for p in ps]
    deviations = [statistics.stdev(curve.values[p]) if len(curve.values[p]) > 1 else 0.0 for p in ps]
    colour = _lighter(COLOURS.get(curve.quantity, COLOURS["other"]), curve.shade)
    axes.plot(ps, means, color=colour, linestyle=STYLES[curve.style % len(STYLES)], marker="o", markersize=2.5,
              linewidth=1.4, label=curve.label)  # fmt: skip
    lower = [mean - deviation for mean, deviation in zip(means, deviations, strict=True)]
    if log_y:  # nothing below zero on a log scale
        lower = [max(low, mean / 10) for low, mean in zip(lower, means, strict=True)]
    upper = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
    axes.fill_between(ps, lower, upper, color=colour, alpha=0.15, linewidth=0)


def _lighter(colour: str, shade: float) -> str:
    """
    >>> _lighter("#000000", 0.5), _lighter("#102030", 0.0)
    ('#808080', '#102030')
    """
    channels = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{math.ceil(channel + (255 - channel) * shade):02x}" for channel in channels)
