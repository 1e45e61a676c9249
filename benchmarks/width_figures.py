"""Figures on how wide a model has to be: recovery against width, angles of estimated subspaces, the bound at risk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from exhume.report.figure_file import save_figure

STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
MOST_TICKS = 8


@dataclass(frozen=True)
class Curve:
    """Points of one setting. `group` shares a colour, `member` tells the lines of a group apart."""

    group: str
    member: str
    across: Sequence[float]
    up: Sequence[float]


def draw_recovery(curves: Sequence[Curve], path: Path) -> None:
    """The share of trials that recover, against the width itself and against the width over r n."""
    figure = _figure(11.4, 3.9)
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, divide in ((left, False), (right, True)):
        _draw(axis, [_per_unknown(curve) if divide else curve for curve in curves])
        axis.set(xscale="log", ylim=(-0.04, 1.04))
    _plain_ticks(right, [_per_unknown(curve) for curve in curves])
    left.set(xlabel="width p", ylabel="share of trials with rho < 0.01")
    right.set(xlabel="p / (numbers that the attacker has to find)")
    right.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    right.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))  # inside, it hides curves
    figure.suptitle("The width that an attack needs follows r where the subspace is known, and not d", fontsize=10)
    _save(figure, path)


def draw_angles(first_layer: Sequence[Curve], moments: Sequence[Curve], path: Path) -> None:
    """Left: the largest angle to the data's span from first layers. Right: energy that a span from moments captures."""
    figure = _figure(9.4, 3.9)
    left, right = figure.subplots(1, 2)
    _draw(left, first_layer)
    left.axhline(1e-3, color="grey", linewidth=0.8, linestyle=":")
    left.set(xscale="log", yscale="log", xlabel="width h", ylabel="largest principal angle (radians)")
    left.set_title("from the change of the first layer", fontsize=9)
    _plain_ticks(left, first_layer)
    left.legend(frameon=False, fontsize=7)
    _draw(right, moments)
    right.set(xscale="log", ylim=(0, 1.03), xlabel="p / (dn)", ylabel="mean share of a sample's energy inside")
    right.set_title("from the moments of the weights, first layer frozen", fontsize=9)
    _plain_ticks(right, moments)
    right.legend(frameon=False, fontsize=7)
    _save(figure, path)


def draw_falsification(curves: Sequence[Curve], bounds: Mapping[str, float], failure_rate: float, path: Path) -> None:
    """How often recovery fails against the width, with the width from which on the bound forbids it.

    `bounds` names a group of the curves each.
    """
    figure = _figure(6.4, 3.9)
    axis = figure.subplots()
    _draw(axis, curves)
    colours = _colours([curve.group for curve in curves])
    for group, width in bounds.items():
        axis.axvline(width, color=colours[group], linewidth=1, linestyle="--")
    axis.axhline(failure_rate, color="grey", linewidth=0.8, linestyle=":")
    axis.annotate(
        f"allowed: {failure_rate:g}", (axis.get_xlim()[0], failure_rate), fontsize=7, va="bottom", color="grey"
    )
    axis.set(xscale="log", ylim=(-0.04, 1.04), xlabel="width p", ylabel="share of trials that fail")
    axis.set_title("Dashed: the bound, from which on recovery must not fail", fontsize=9)
    axis.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _per_unknown(curve: Curve) -> Curve:
    """Members carry the numbers to find as their last word, e.g. "r = 5, 30"."""
    unknowns = float(curve.member.rpartition(" ")[2].replace(",", ""))
    return Curve(curve.group, curve.member, [width / unknowns for width in curve.across], curve.up)


def _draw(axis: Axes, curves: Sequence[Curve]) -> None:
    colours = _colours([curve.group for curve in curves])
    seen: dict[str, int] = {}
    for curve in curves:
        place = seen[curve.group] = seen.get(curve.group, -1) + 1
        axis.plot(
            curve.across,
            curve.up,
            color=colours[curve.group],
            linestyle=STYLES[place % len(STYLES)],
            marker=MARKERS[place % len(MARKERS)],
            markersize=3.5,
            linewidth=1.3,
            label=f"{curve.group}, {curve.member}" if curve.member else curve.group,
        )
    axis.spines[["top", "right"]].set_visible(False)


def _plain_ticks(axis: Axes, curves: Sequence[Curve]) -> None:
    """The numbers themselves below a logarithmic axis, where there are few of them."""
    values = sorted({value for curve in curves for value in curve.across})
    if len(values) <= MOST_TICKS:
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.set_xticks([], minor=True)


def _colours(groups: Sequence[str]) -> dict[str, tuple[float, float, float, float]]:
    names = list(dict.fromkeys(groups))
    return {name: colormaps["viridis"](0.85 * place / max(1, len(names) - 1)) for place, name in enumerate(names)}


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    save_figure(figure, path, dpi=150)
