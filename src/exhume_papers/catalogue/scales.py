"""What the figures on random features have in common at each scale.

"paper" has the sizes, seeds and grids of arXiv 2509.22214, "here" is what two cores and 24 GB can do, "quick" is all of
it in minutes. Below p = dn no attack ends by itself, so all of them have a limit of iterations.
"""

from typing import Any

from exhume_papers.catalogue.figure import Scale
from exhume_papers.catalogue.thresholds import p_grid

CIFAR = {"kind": "rf", "data": "cifar10"}
CIFAR_PIXELS = 3072

_BELOW: dict[Scale, tuple[float, ...]] = {"quick": (0.25, 1), "here": (0.2, 1, 3), "paper": (0.2, 0.5, 1, 2, 5)}
_ABOVE: dict[Scale, tuple[float, ...]] = {
    "quick": (0.25, 1, 2, 4, 10),
    "here": (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10),
    "paper": (0.03, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10),
}
EXHUME: dict[Scale, dict[str, Any]] = {
    "quick": {"method": "split-newton", "iterations": 150},
    "here": {"method": "split-newton", "iterations": 600},
    "paper": {"method": "split-newton", "iterations": 2_000},
}
ON_IMAGES: dict[Scale, dict[str, Any]] = {"here": {"iterations": 400}}
PUBLISHED: dict[Scale, dict[str, Any]] = {
    "quick": {"method": "heavy-ball", "iterations": 1_000},
    "here": {"method": "heavy-ball", "iterations": 20_000},
    "paper": {"method": "heavy-ball", "iterations": 60_000},
}


def exhume(scale: Scale, n: int, images: bool = False) -> dict[str, Any]:
    """exhume's attack with the knowledge that the published one needs, n: what is compared is what each makes of it."""
    return EXHUME[scale] | {"samples": n} | (ON_IMAGES.get(scale, {}) if images else {})


def grid(scale: Scale, n: int, d: int) -> list[int]:
    return p_grid(n, d, _BELOW[scale], _ABOVE[scale])


def sphere(d: int, n: int, **options: Any) -> dict[str, Any]:
    return {"kind": "rf", "data": "sphere", "dim": d, "samples": n, **options}


def cifar(n: int, side: int = 32, **options: Any) -> dict[str, Any]:
    """Frogs and trucks; images of 32 pixels a side, or averaged down."""
    smaller = {} if side == 32 else {"side": side}
    return {**CIFAR, "samples": n, **smaller, **options}
