"""Values of victims and benches that users write as text, and what they mean."""

import math

from exhume.errors import UsageError
from exhume.values import parse_counts


def parse_ratios(text: str) -> tuple[float, ...]:
    """Positive numbers, e.g. 1,1.5,2."""
    try:
        ratios = tuple(float(word) for word in text.split(","))
    except ValueError:
        ratios = ()
    if not ratios or not all(math.isfinite(ratio) and ratio > 0 for ratio in ratios):
        raise UsageError(f"expected positive numbers separated by commas, found {text!r}")
    return ratios


def resolve_params(ratio: float | None, params: int | None, n: int, d: int) -> int:
    """p from --ratio p/(dn) or --params: exactly one of the two.

    >>> resolve_params(3.0, None, 20, 100), resolve_params(None, 42, 20, 100)
    (6000, 42)
    """
    if (ratio is None) == (params is None):
        found = "neither" if ratio is None else "both"
        raise UsageError(f"expected one of --ratio and --params, found {found}")
    p = params if params is not None else _times(ratio, d * n)
    if p < 1:
        given = f"--params {params}" if params is not None else f"--ratio {ratio} (p = {p})"
        raise UsageError(f"expected at least one parameter (p >= 1), found {given}")
    return p


def resolve_width(
    width: int | None, ratio: float | None, params: int | None, n: int, d: int, each: int, multiple: int = 1
) -> int:
    """A width from --width, --ratio p/(dn) or --params, exactly one of them; `each` weights of the head a unit.

    Widths that are not given are rounded to a multiple, and the number of weights with them.

    >>> resolve_width(None, 4.0, None, n=10, d=300, each=10), resolve_width(7, None, None, n=10, d=300, each=10)
    (1200, 7)
    """
    if width is None:
        return max(1, round(resolve_params(ratio, params, n, d) / (each * multiple))) * multiple
    if ratio is not None or params is not None:
        raise UsageError("expected a width, --ratio or --params, found two of them")
    return width


def parse_shape(text: str | None, d: int) -> tuple[int, ...] | None:
    """
    >>> parse_shape("3,4,4", 48), parse_shape("flat", 48), parse_shape(None, 48)
    ((3, 4, 4), (48,), None)
    """
    if text is None:
        return None
    if text == "flat":
        return (d,)
    sizes = parse_counts(text) or ()
    if min(sizes) < 1:
        raise UsageError(f"expected an image shape like 3,32,32 or flat, found {text!r}")
    return sizes


def parse_defence(text: str | None) -> str:
    """Defences with commas or plus signs between them, as one text with plus signs.

    >>> parse_defence("int8,prune50"), parse_defence(None)
    ('int8+prune50', '')
    """
    joined = "" if text is None else "+".join(part.strip() for part in text.replace("+", ",").split(","))
    return "" if joined == "none" else joined


def _times(ratio: float | None, numbers: int) -> int:
    if ratio is None or not 0 < ratio < 1e12:
        raise UsageError(f"expected a positive --ratio, found {ratio}")
    return round(ratio * numbers)
