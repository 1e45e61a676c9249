"""Writes drawings, so that a picture with its final name is whole."""

from pathlib import Path

from matplotlib.figure import Figure

from exhume.files import replacing


def save_figure(figure: Figure, path: Path, dpi: float | None = None) -> None:
    """As PNG, without the version of matplotlib in it. `dpi` is the figure's own where it is not given."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi="figure" if dpi is None else dpi, metadata={"Software": None})
