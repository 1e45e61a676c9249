"""The figures of the second paper: the width needed follows the dimension r of the data's span, not d."""

from collections.abc import Sequence
from typing import Any

from exhume_papers.catalogue.figure import Figure, Scale
from exhume_papers.catalogue.networks import TEN
from exhume_papers.catalogue.thresholds import Panel, ThresholdFigure, sweeps_of

INSIDE: dict[str, Any] = {"subspace": "first-layer"}
WHOLE: dict[str, Any] = {"method": "split-newton"}
LIMITS: dict[Scale, dict[str, Any]] = {
    "quick": {"iterations": 150},
    "here": {"iterations": 600},
    "paper": {"iterations": 2_000},
}


def _synthetic(d: int, n: int, r: int | list[int], widths: list[int]) -> dict[str, Any]:
    """Sign labels, one output, so that p_L is the width; the first layer's initial weights are known."""
    data = {"data": "sphere", "dim": d, "samples": n, "subspace": r, "labels": "sign"}
    return {"kind": "two-layer", **data, "width": widths, "knows_first_layer": True}


def _widths(scale: Scale) -> Sequence[Panel]:
    d, n, ranks, widths, seeds = {
        "quick": (20, 4, [2, 3], [20, 40, 80, 160], 1),
        "here": (200, 20, [5, 10, 20], [100, 200, 400, 800, 1600], 3),
        "paper": (200, 20, [5, 10, 20, 40], [100, 200, 400, 800, 1600, 3200], 10),
    }[scale]
    some, wide, few = {
        "quick": (2, [160, 320], 1),
        "here": (10, [800, 1600, 4000, 8000, 16000], 1),
        "paper": (10, [800, 1600, 4000, 8000, 16000, 32000], 10),
    }[scale]
    inside, whole = LIMITS[scale] | INSIDE, LIMITS[scale] | WHOLE
    return [
        Panel(
            f"data in r of d={d} dimensions, n={n}: in their span",
            sweeps_of([_synthetic(d, n, ranks, widths)], [inside], seeds),
            ("error",),
            "train.subspace",
            "r =",
        ),
        Panel(
            f"r={some}: in their span, and in the whole space",
            sweeps_of([_synthetic(d, n, some, widths)], [inside], seeds)
            + sweeps_of([_synthetic(d, n, some, wide)], [whole], few),
            ("error",),
        ),
    ]


def _cifar(scale: Scale) -> Sequence[Panel]:
    side, seeds, ratios = {
        "quick": (8, 1, [0.25, 1, 4]),
        "here": (32, 2, [0.02, 0.05, 0.1, 0.5, 1, 2, 4]),
        "paper": (32, 10, [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4]),
    }[scale]
    smaller = {} if side == 32 else {"side": side}
    victim = {"kind": "two-layer", "data": "cifar10", "classes": TEN, "samples": 10, **smaller}
    attacks = [LIMITS[scale] | INSIDE, LIMITS[scale] | WHOLE]
    sweeps = sweeps_of([victim | {"ratio": ratios, "knows_first_layer": True}], attacks, seeds)
    return [Panel(f"two-layer, CIFAR-10 {side}x{side}, n=10", sweeps, ("error",))]


PUBLISHED = "the paper's figures are not at hand; its claim is that the width needed follows r and not d"
FIGURES: tuple[Figure, ...] = (
    ThresholdFigure(
        "subspace-width",
        "second paper: error against the width, for data in r of d dimensions",
        PUBLISHED,
        _widths,
        {"quick": "d=20, n=4", "here": "two-layer networks, sign labels; 600 iterations per attack"},
    ),
    ThresholdFigure(
        "subspace-cifar",
        "second paper: CIFAR-10, in the span that the first layer's change shows and in the whole space",
        PUBLISHED,
        _cifar,
        {"quick": "8x8 pixels, 1 seed", "here": "2 seeds; 600 iterations per attack"},
    ),
)
