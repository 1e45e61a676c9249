"""The pictures of `exhume bench`."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from exhume.report.figure_file import save_figure

LABELS = {"split-newton": "exhume (split Gauss-Newton)", "heavy-ball": "published (heavy ball)"}
COLOURS = {"split-newton": "#b4451f", "heavy-ball": "#4a5568"}


def draw_race(curves: Mapping[str, Sequence[tuple[float, float, float]]], title: str, path: Path) -> None:
    """Error against passes over the weights, and against seconds."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2, sharey=True)
    for position, (axis, unit) in enumerate(zip(axes, ("passes over the weights", "seconds"), strict=True)):
        for method, curve in curves.items():
            across = [max(point[position], 1e-2) for point in curve]
            axis.plot(across, [point[2] for point in curve], color=COLOURS[method], label=LABELS[method])
        axis.axhline(0.05, color="grey", linewidth=0.8, linestyle=":")
        axis.set(xscale="log", yscale="log", xlabel=unit)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("reconstruction error rho")
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path, dpi=150)


def draw_success(shares: Mapping[str, Mapping[str, float]], title: str, path: Path) -> None:
    """The share of trials that end with rho < 0.01, against p / (dn)."""
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for method, share in shares.items():
        ratios = [float(ratio) for ratio in share]
        axis.plot(ratios, list(share.values()), marker="o", color=COLOURS[method], label=LABELS[method])
    axis.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    axis.set(xlabel="p / (dn)", ylabel="share of trials with rho < 0.01", ylim=(-0.03, 1.03), title=title)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    save_figure(figure, path, dpi=150)


BINS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0)  # of |alpha_i| / max |alpha|


def recovered_by_coefficient(pairs: Sequence[tuple[float, float]]) -> list[float | None]:
    """The share of samples within 0.1 sqrt(d) of a candidate, by the size of their coefficient (None: no sample)."""
    shares: list[float | None] = []
    for low, high in itertools.pairwise(BINS):
        inside = [distance for size, distance in pairs if low < size <= high]
        shares.append(sum(distance < 0.1 for distance in inside) / len(inside) if inside else None)
    return shares


def draw_coefficients(pairs_by_ratio: Mapping[str, Sequence[tuple[float, float]]], title: str, path: Path) -> None:
    """Each sample's error against the size of its coefficient, and the share recovered: small ones are found last."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    scatter, shares = figure.subplots(1, 2)
    middles = [(low + high) / 2 for low, high in itertools.pairwise(BINS)]
    for place, (ratio, pairs) in enumerate(pairs_by_ratio.items()):
        colour = colormaps["viridis"](0.9 * place / max(1, len(pairs_by_ratio) - 1))
        sizes, distances = [max(pair[0], 1e-4) for pair in pairs], [max(pair[1], 1e-8) for pair in pairs]
        scatter.scatter(sizes, distances, s=8, alpha=0.5, color=colour, label=f"p = {ratio} dn")
        found = [(x, y) for x, y in zip(middles, recovered_by_coefficient(pairs), strict=True) if y is not None]
        shares.plot([x for x, _ in found], [y for _, y in found], marker="o", color=colour, label=f"p = {ratio} dn")
    scatter.axhline(0.1, color="grey", linewidth=0.8, linestyle=":")
    scatter.set(xscale="log", yscale="log", xlabel="|alpha_i| / max |alpha|", ylabel="error of the sample / sqrt(d)")
    shares.set(xlabel="|alpha_i| / max |alpha|", ylabel="share within 0.1 sqrt(d)", ylim=(-0.03, 1.03))
    figure.legend(*shares.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right center")
    for axis in (scatter, shares):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path, dpi=150)
