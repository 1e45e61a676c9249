"""The pictures of `exhume bench`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
    figure.savefig(path, dpi=150)


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
    figure.savefig(path, dpi=150)


def draw_coefficients(pairs: Sequence[tuple[float, float]], path: Path) -> None:
    """Each sample's error against the size of its coefficient: small coefficients are found last."""
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    across = [max(pair[0], 1e-4) for pair in pairs]
    axis.scatter(across, [max(pair[1], 1e-8) for pair in pairs], s=8, alpha=0.5, color=COLOURS["split-newton"])
    axis.set(xscale="log", yscale="log", xlabel="|alpha_i| / max |alpha|", ylabel="error of the sample")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
