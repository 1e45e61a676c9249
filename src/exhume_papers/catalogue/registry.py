"""All figures by name."""

import re
from collections.abc import Sequence

from exhume.errors import UsageError
from exhume_papers.catalogue import networks, random_features, second_seed, variations
from exhume_papers.catalogue.figure import Figure

LAST = 100  # the second paper's figures have no number


def _order(figure: Figure) -> tuple[int, str]:
    number = re.match(r"fig(\d+)", figure.name)
    return int(number[1]) if number else LAST, figure.name


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in sorted(
        [*random_features.FIGURES, *variations.FIGURES, *networks.FIGURES, *second_seed.FIGURES], key=_order
    )
}


def chosen(names: Sequence[str]) -> list[Figure]:
    """The figures of these names; fig6 is all that belongs to figure 6, fig6-resnet a part of it."""
    found: dict[str, Figure] = {}
    for name in names:
        of_name = {key: figure for key, figure in FIGURES.items() if key == name or key.startswith(f"{name}-")}
        if not of_name:
            raise UsageError(f"expected a figure out of {', '.join(FIGURES)}, or theory, found {name!r}")
        found |= of_name
    return [figure for name, figure in FIGURES.items() if name in found]
