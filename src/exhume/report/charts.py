"""Where the marks of the page's two drawings go, in percent of their width and height.

Percent, because then text keeps its size while the drawing follows the width of the screen.
"""

import math
from typing import Any

from exhume.theory import Zone

ROOM = 10.0
"""The gauge shows a factor of this much beside its outermost mark."""
CLOSE = 24.0
NARROW_BAND = 22.0
SMALLEST_LOSS = 1e-18
MOST_Y_TICKS, MOST_X_TICKS = 6, 5
ZONE_NAMES: tuple[tuple[Zone, str], ...] = (
    ("underfit", "p < n"),
    ("labels", "n \u2264 p < dn"),
    ("data", "p \u2265 dn"),
)


def gauge_chart(gauge: dict[str, Any]) -> dict[str, Any] | None:
    """Bands of the three zones, thresholds at n and d n, and a marker at p, on a log scale of p."""
    p, d, n = gauge["p"], gauge["d"], gauge["n"]
    if n is None:
        return None
    low, high = math.log(min(p, n) / ROOM), math.log(max(p, d * n) * ROOM)

    def place(value: int) -> float:
        return round(100 * (math.log(value) - low) / (high - low), 3)

    edges = [0.0, place(n), place(d * n), 100.0]
    bands = [
        {
            "zone": zone,
            "x": edges[index],
            "width": round(edges[index + 1] - edges[index], 3),
            "name": name if edges[index + 1] - edges[index] >= NARROW_BAND else "",
            "here": zone == gauge["zone"],
        }
        for index, (zone, name) in enumerate(ZONE_NAMES)
    ]
    apart = edges[2] - edges[1] >= CLOSE
    thresholds = [
        {"x": edges[1], "label": f"n = {n:,}", "anchor": "middle" if apart else "end"},
        {"x": edges[2], "label": f"dn = {d * n:,}", "anchor": "middle" if apart else "start"},
    ]
    marker = place(p)
    return {"bands": bands, "thresholds": thresholds, "marker": {"x": marker, "anchor": _anchor(marker)}}


def loss_chart(trace: list[dict[str, Any]], held_out_loss: float | None) -> dict[str, Any] | None:
    """Loss against iterations: decades from top to bottom, the curve as points of a 1000 × 1000 square."""
    if len(trace) < 2:
        return None
    levels = [_exponent(line["loss"]) for line in trace]
    unseen = None if held_out_loss is None else _exponent(held_out_loss)
    everything = levels if unseen is None else [*levels, unseen]
    bottom, top = math.floor(min(everything)), math.ceil(max(everything))
    top = max(top, bottom + 1)
    first, last = trace[0]["iteration"], trace[-1]["iteration"]

    def across(iteration: float | int) -> float:
        return round(100 * (iteration - first) / (last - first), 3)

    def down(exponent: float | int) -> float:
        return round(100 * (top - exponent) / (top - bottom), 3)

    points = [(10 * across(line["iteration"]), 10 * down(level)) for line, level in zip(trace, levels, strict=True)]
    stride = math.ceil((top - bottom) / MOST_Y_TICKS)
    return {
        "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        "top": top,
        "bottom": bottom,
        "held_out": None if unseen is None else down(unseen),
        "y_ticks": [{"y": down(exponent), "exponent": exponent} for exponent in range(top, bottom - 1, -stride)],
        "x_ticks": [{"x": across(tick), "label": f"{tick:,}"} for tick in _round_numbers(int(first), int(last))],
    }


def _exponent(loss: float) -> float:
    return math.log10(max(loss, SMALLEST_LOSS))


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
