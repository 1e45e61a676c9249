"""Where the marks of the page's drawings go, in percent of their width and height.

Percent, because then text keeps its size while the drawing follows the width of the screen.
"""

import math
from collections.abc import Sequence
from typing import Any

from exhume.theory import Zone

ROOM = 10.0
"""The gauge shows a factor of this much beside its outermost mark."""
CLOSE = 24.0
NARROW_BAND = 22.0
SMALLEST = 1e-18
MOST_Y_TICKS, MOST_X_TICKS = 6, 5
ZONE_NAMES: tuple[tuple[Zone, str], ...] = (
    ("underfit", "p < n"),
    ("labels", "n \u2264 p < dn"),
    ("data", "p \u2265 dn"),
)
UNKNOWN_N_NAMES: tuple[tuple[Zone, str], ...] = (
    ("data", "n \u2264 p/d"),
    ("labels", "p/d < n \u2264 p"),
    ("underfit", "n > p"),
)
HEADROOM = 0.1
"""Decades above the highest value of a chart."""
Points = list[tuple[float, float]]


def gauge_chart(gauge: dict[str, Any]) -> dict[str, Any]:
    """Bands of the three zones on a log scale of p, thresholds at n and d n, and a marker at p.

    Where nobody knows n the scale is that of n, with thresholds at p / d and p, and no marker.
    """
    p, d, n = gauge["p"], gauge["d"], gauge["n"]
    if n is None:
        capacity = max(1, p // d)
        return _banded(
            (capacity, p), (f"n = p/d = {p / d:,.3g}", f"n = p = {p:,}"), UNKNOWN_N_NAMES, gauge["zone"], None
        )
    return _banded((n, d * n), (f"n = {n:,}", f"dn = {d * n:,}"), ZONE_NAMES, gauge["zone"], p)


def _banded(
    at: tuple[int, int], labels: tuple[str, str], names: tuple[tuple[Zone, str], ...], zone: str, mark: int | None
) -> dict[str, Any]:
    seen = at if mark is None else (*at, mark)
    low, high = math.log(min(seen) / ROOM), math.log(max(seen) * ROOM)

    def place(value: int) -> float:
        return round(100 * (math.log(value) - low) / (high - low), 3)

    edges = [0.0, place(at[0]), place(at[1]), 100.0]
    bands = [
        {
            "zone": own,
            "x": edges[index],
            "width": round(edges[index + 1] - edges[index], 3),
            "name": name if edges[index + 1] - edges[index] >= NARROW_BAND else "",
            "here": own == zone,
        }
        for index, (own, name) in enumerate(names)
    ]
    anchors = ("middle", "middle") if edges[2] - edges[1] >= CLOSE else ("end", "start")
    thresholds = [
        {"x": x, "label": label, "anchor": anchor} for x, label, anchor in zip(edges[1:3], labels, anchors, strict=True)
    ]
    marker = None if mark is None else {"x": place(mark), "anchor": _anchor(place(mark))}
    return {"bands": bands, "thresholds": thresholds, "marker": marker}


def loss_charts(
    trace: list[dict[str, Any]], frames: list[dict[str, Any]], held_out_loss: float | None
) -> dict[str, dict[str, Any]]:
    """The loss on the weights used and on those held out, against iterations and against passes.

    Held-out weights are looked at in a few places of the way, or at its end only: then they are a level.
    """
    along = [frame for frame in frames if frame["held_out_loss"] is not None]
    level = held_out_loss if len(along) < 2 else None
    charts = {}
    for across in ("iteration", "passes"):
        series = [_series(trace, across, "loss")]
        if len(along) >= 2:
            series.append(_series(along, across, "held_out_loss"))
        if chart := chart_of(series, [level] if level is not None else []):
            charts[across] = chart
    return charts


def error_charts(frames: list[dict[str, Any]], chance: float | None) -> dict[str, dict[str, Any]]:
    """The median relative error at each snapshot, and its chance level."""
    known = [frame for frame in frames if frame["error"] is not None]
    levels = [] if chance is None else [chance]
    found = {across: chart_of([_series(known, across, "error")], levels) for across in ("iteration", "passes")}
    return {across: chart for across, chart in found.items() if chart}


def chart_of(series: Sequence[Points], levels: Sequence[float]) -> dict[str, Any] | None:
    """Curves on a log scale as points of a 1000 × 1000 square, decades from top to bottom, and level lines."""
    places = [x for points in series for x, _ in points]
    if not places or min(places) == max(places) or len(series[0]) < 2:
        return None
    exponents = [_exponent(y) for points in series for _, y in points] + [_exponent(level) for level in levels]
    bottom = math.floor(min(exponents))
    top = max(round(max(exponents) + HEADROOM, 3), bottom + 1)
    first, last = min(places), max(places)

    def across(x: float) -> float:
        return round(100 * (x - first) / (last - first), 3)

    def down(exponent: float) -> float:
        return round(100 * (top - exponent) / (top - bottom), 3)

    curves = [[(across(x), down(_exponent(y))) for x, y in points] for points in series]
    stride = math.ceil((top - bottom) / MOST_Y_TICKS)
    decades = range(math.floor(top), bottom - 1, -stride)
    return {
        "curves": [" ".join(f"{10 * x:.1f},{10 * y:.1f}" for x, y in curve) for curve in curves],
        "dots": [[{"x": x, "y": y} for x, y in curve] for curve in curves],
        "first": first,
        "last": last,
        "top": top,
        "bottom": bottom,
        "levels": [down(_exponent(level)) for level in levels],
        "y_ticks": [{"y": down(exponent), "exponent": exponent} for exponent in decades],
        "x_ticks": [{"x": across(tick), "label": f"{tick:,}"} for tick in _round_numbers(int(first), int(last))],
    }


def _series(lines: list[dict[str, Any]], across: str, name: str) -> Points:
    return [(float(line[across]), float(line[name])) for line in lines if across in line]


def _exponent(value: float) -> float:
    return math.log10(max(value, SMALLEST))


def _anchor(x: float) -> str:
    return "start" if x < 30 else "end" if x > 70 else "middle"


def _round_numbers(first: int, last: int) -> list[int]:
    """
    >>> _round_numbers(0, 950)
    [0, 200, 400, 600, 800]
    """
    step = 1
    while (last - first) / step > MOST_X_TICKS:
        # 1, 2, 5, 10, 20, 50, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(-(-first // step) * step, last + 1, step))
