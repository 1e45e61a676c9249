"""Numbers as a reader wants them: few digits, thousands set apart, no trailing zeros."""

import math

SIGNIFICANT = 3
PLAIN_FROM, PLAIN_BELOW = 1e-3, 1e6


def is_plain(value: float) -> bool:
    """Whether a number reads better as decimals than as a power of ten."""
    return value == 0 or not math.isfinite(value) or PLAIN_FROM <= abs(value) < PLAIN_BELOW


def plain(value: float | int | None) -> str:
    """
    >>> plain(12345), plain(0.12345), plain(3.2e-08), plain(1234.5), plain(None)
    ('12,345', '0.123', '3.2e-8', '1,234', 'unknown')
    """
    if value is None:
        return "unknown"
    if isinstance(value, int):
        return f"{value:,}"
    if not is_plain(value):
        mantissa, exponent = split_power(value)
        return f"{mantissa}e{exponent}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{SIGNIFICANT}g}"


def split_power(value: float) -> tuple[str, int]:
    """Mantissa and exponent of a number that is not plain.

    >>> split_power(3.2e-08)
    ('3.2', -8)
    """
    mantissa, exponent = f"{value:.{SIGNIFICANT - 1}e}".split("e")
    return f"{float(mantissa):g}", int(exponent)


def percent(share: float) -> str:
    """Never rounds up to 100 or down to 0.

    >>> percent(1.0), percent(0.99999), percent(0.5), percent(1e-9)
    ('100 %', '99.9 %', '50 %', '0.1 %')
    """
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    return f"{min(max(100 * share, 0.1), 99.9):.3g} %"
