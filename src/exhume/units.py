"""Times and sizes as users write them."""

import re
from decimal import Decimal

from exhume.errors import UsageError

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_duration(text: str) -> float:
    """
    >>> parse_duration("90"), parse_duration("1.5m"), parse_duration("2h")
    (90.0, 90.0, 7200.0)
    """
    return _parse(text, _SECONDS, "a time like 90s, 10m or 2h")


def parse_bytes(text: str) -> int:
    """
    >>> parse_bytes("512M"), parse_bytes("8GB") == parse_bytes("8g")
    (536870912, True)
    """
    return int(_parse(re.sub(r"(?i)i?b$", "", text), _BYTES, "a size like 512M or 8G"))


def duration_text(seconds: float) -> str:
    """A text that `parse_duration` reads back.

    >>> duration_text(600), duration_text(90), duration_text(0.25)
    ('10m', '90s', '0.25s')
    """
    return _text(seconds, {"m": 60, "h": 3600}, "s")


def bytes_text(size: int) -> str:
    """
    >>> bytes_text(2**33), bytes_text(1000)
    ('8G', '1000')
    """
    return _text(size, {unit.upper(): factor for unit, factor in _BYTES.items()}, "")


def _text(value: float, units: dict[str, int], unit: str) -> str:
    """In the largest unit of which it is a whole number, and else in the one that counts as 1."""
    whole = {name: int(value // factor) for name, factor in units.items() if value and value % factor == 0}
    if whole:
        name = min(whole, key=lambda name: whole[name])
        return f"{whole[name]}{name}"
    return format(Decimal(repr(value)).normalize(), "f") + unit


def _parse(text: str, units: dict[str, int], expected: str) -> float:
    parsed = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,30})?)\s*([a-zA-Z]?)\s*", text)
    if not parsed or parsed[2].lower() not in units or float(parsed[1]) <= 0:
        raise UsageError(f"expected {expected}, found {text!r}")
    return float(parsed[1]) * units[parsed[2].lower()]
