"""The picture of `exhume compare`: how far each attack came, and in which time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from exhume.report.figure_file import save_figure

COLOURS = {"recovered": "#2f855a", "partial": "#b7791f", "spurious": "#b4451f", "not_converged": "#718096"}
SMALLEST = 1e-8


def draw_compared(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """One bar an attack that was made: its error, or its held-out loss where nobody knows the truth."""
    made = [row for row in rows if row["reason"] is None]
    known = any(row["error"] is not None for row in made)
    measure = "error" if known else "held_out_loss"
    figure = Figure(figsize=(7.2, 0.9 + 0.45 * max(len(made), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for place, row in enumerate(reversed(made)):
        value = max(row[measure] if row[measure] is not None else 1.0, SMALLEST)
        axis.barh(place, value, left=0, height=0.6, color=COLOURS.get(row["outcome"], "#718096"))
        text = f" {row['outcome']}, {row['candidates']} candidates, {row['seconds']:.1f} s"
        axis.annotate(text, (value, place), va="center", fontsize=8)
    axis.set_yticks(range(len(made)), [row["name"] for row in reversed(made)])
    axis.set(xscale="log", xlim=(SMALLEST, 100), xlabel="reconstruction error rho" if known else "held-out loss")
    chance = next((row["chance_error"] for row in made if row["chance_error"] is not None), None)
    if known and chance is not None:
        axis.axvline(chance, color="grey", linewidth=0.8, linestyle=":")
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(title, fontsize=10)
    save_figure(figure, path, dpi=150)
