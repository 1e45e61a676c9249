"""Figures of something against p."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exhume_papers.catalogue.figure import EXACT, RELEASED, Figure, Part, PartResults, Scale, attack_name, shown
from exhume_papers.figures.threshold_figures import NAMES, Curve, ThresholdPanel, draw_thresholds
from exhume_papers.sweeps.sweep import Sweep

Rows = Sequence[Mapping[str, Any]]
RECOVERED_ERROR = 0.1


def p_grid(n: int, d: int, below: Sequence[float], above: Sequence[float]) -> list[int]:
    """Numbers of parameters: multiples of n, then multiples of dn, each once.

    >>> p_grid(20, 100, below=(0.2, 1), above=(0.1, 1, 10))
    [4, 20, 200, 2000, 20000]
    """
    return sorted({max(1, round(factor * n)) for factor in below} | {round(factor * n * d) for factor in above})


@dataclass(frozen=True)
class Panel(Part):
    """One set of axes. With `varied`, there is one shade for each value of that option.

    `against`: the column that is p; that of the weights which were published, unless a figure counts others.
    """

    quantities: Sequence[str] = ("error", "training_loss")
    varied: str | None = None
    varied_name: str = ""
    log_y: bool = False
    against: str = "p"


@dataclass(frozen=True)
class ThresholdFigure(Figure):
    name: str
    title: str
    published: str
    panels: Callable[[Scale], Sequence[Panel]]
    differs: Mapping[Scale, str] = field(default_factory=dict)

    def parts(self, scale: Scale) -> Sequence[Panel]:
        return self.panels(scale)

    def draw(self, results: Sequence[PartResults], folder: Path) -> list[Path]:
        drawn = [threshold_panel(result) for result in results if result.rows]
        draw_thresholds(drawn, folder / f"{self.name}.png")
        return [folder / f"{self.name}.png"]

    def findings(self, results: Sequence[PartResults]) -> list[str]:
        return [sentence for result in results for sentence in threshold_sentences(result)]


def threshold_panel(result: PartResults) -> ThresholdPanel:
    panel, rows = result.part, result.rows
    assert isinstance(panel, Panel)
    attacks = sorted({attack_name(row) for row in rows})
    values = varied_values(rows, panel.varied)
    curves = []
    for attack in attacks:
        for position, value in enumerate(values):
            chosen = [row for row in rows if attack_name(row) == attack and varied(row, panel.varied) == value]
            for quantity in panel.quantities:
                if not chosen or (quantity == "training_loss" and attack != attacks[0]):
                    continue  # the loss is the victim's, whoever attacks it
                label = NAMES.get(quantity, quantity)
                label += f", {attack}" if len(attacks) > 1 and quantity != "training_loss" else ""
                label += f", {panel.varied_name} {_told(value)}" if panel.varied else ""
                style = attacks.index(attack) + 2 * (panel.varied is not None and quantity == "training_loss")
                shade = 0.75 * position / max(1, len(values) - 1) if panel.varied else 0.0
                curves.append(Curve(label, quantity, over_seeds(chosen, quantity, panel.against), style, shade))
    others = [name for name in panel.quantities if name not in NAMES]
    return ThresholdPanel(panel.title, int(rows[0]["n"]), int(rows[0]["d"]), curves, ", ".join(others), panel.log_y)


def threshold_sentences(result: PartResults) -> list[str]:
    """For each curve of the panel, its values at p = n, at p = dn and at the largest p."""
    panel, rows = result.part, result.rows
    assert isinstance(panel, Panel)
    sentences = []
    for attack in sorted({attack_name(row) for row in rows}):
        for value in varied_values(rows, panel.varied):
            chosen = [row for row in rows if attack_name(row) == attack and varied(row, panel.varied) == value]
            for quantity in panel.quantities:
                if quantity != "training_loss" and chosen:
                    with_value = f", {panel.varied_name} {_told(value)}" if panel.varied else ""
                    sentences.append(
                        f"{panel.title}, {attack}{with_value}: {NAMES.get(quantity, quantity)} "
                        f"{at_thresholds(chosen, quantity, panel.against)}"
                        f"{_about_errors(chosen, panel.against) if quantity == 'error' else ''}"
                    )
    return sentences


def at_thresholds(rows: Rows, quantity: str, against: str = "p") -> str:
    """Means and deviations at the p nearest to n, to dn, and at the largest; of errors, how many are small."""
    n, d = int(rows[0]["n"]), int(rows[0]["d"])
    found = over_seeds(rows, quantity, against)
    if not found:
        return "nowhere"
    wanted = sorted({_nearest(found, n), _nearest(found, d * n), max(found)})
    released = over_seeds(rows, RELEASED, against) if quantity == "error" else {}
    return ", ".join(
        f"{mean_and_deviation(found[p])} at p = {_in_units(p, n, d)}{_success(found[p], released.get(p))}"
        for p in wanted
    )


def mean_and_deviation(values: Sequence[float]) -> str:
    """The mean over seeds, and one standard deviation, where there are several.

    >>> mean_and_deviation([1.0, 3.0]), mean_and_deviation([0.5])
    ('2 ± 1.4', '0.5')
    """
    spread = f" ± {shown(statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{shown(statistics.fmean(values))}{spread}"


def _success(errors: Sequence[float], released: Sequence[float] | None) -> str:
    """How many seeds came out small, and the mean error in the authors' own metric."""
    if released is None:
        return ""
    small = sum(error < RECOVERED_ERROR for error in errors)
    return f" ({small} of {len(errors)} recovered, {shown(statistics.fmean(released))} in the released metric)"


def _about_errors(rows: Rows, against: str) -> str:
    """From where on they are small; and where features drifted, what no attack's loss can go below at the largest p."""
    floors = list(over_seeds(rows, "floor", against).values())
    finding = (
        f", floor of the loss there {shown(statistics.fmean(floors[-1]))}" if floors and max(floors[-1]) > EXACT else ""
    )
    return f"{finding}{_recovered_from(rows, against)}"


def _recovered_from(rows: Rows, against: str) -> str:
    """From which p on the mean error stays small; nothing where it never does."""
    n, d = int(rows[0]["n"]), int(rows[0]["d"])
    first = None
    for p, values in reversed(over_seeds(rows, "error", against).items()):
        if statistics.fmean(values) >= RECOVERED_ERROR:
            break
        first = p
    return "" if first is None else f", below {RECOVERED_ERROR} from p = {_in_units(first, n, d)} on"


def _nearest(ps: Iterable[int], aim: int) -> int:
    return min(ps, key=lambda p: abs(math.log(p / aim)))


def over_seeds(rows: Rows, quantity: str, against: str = "p") -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.get(quantity) is not None:
            found.setdefault(round(int(row[against])), []).append(float(row[quantity]))
    return dict(sorted(found.items()))


def varied(row: Mapping[str, Any], option: str | None) -> Any:
    return None if option is None else row.get(option)


def varied_values(rows: Rows, option: str | None) -> list[Any]:
    values = {varied(row, option) for row in rows}
    return sorted(
        values, key=lambda value: (value is not None, value if isinstance(value, int | float) else 0, str(value))
    )


def sweeps_of(
    victims: Sequence[Mapping[str, Any]], attacks: Sequence[Mapping[str, Any]], seeds: int
) -> tuple[Sweep, ...]:
    return (Sweep(victims=tuple(map(dict, victims)), attacks=tuple(map(dict, attacks)), seeds=seeds),)


def _told(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def _in_units(p: int, n: int, d: int) -> str:
    """
    >>> _in_units(20, 20, 100), _in_units(5000, 20, 100), _in_units(7, 20, 100)
    ('n', '2.5dn', '0.35n')
    """
    unit, name = (n, "n") if p < math.sqrt(d) * n else (d * n, "dn")
    return name if p == unit else f"{p / unit:.3g}{name}"
