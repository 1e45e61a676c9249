"""Times and sizes as users write them."""

import re

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


def _parse(text: str, units: dict[str, int], expected: str) -> float:
    parsed = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,30})?)\s*([a-zA-Z]?)\s*", text)
    if not parsed or parsed[2].lower() not in units or float(parsed[1]) <= 0:
        raise UsageError(f"expected {expected}, found {text!r}")
    return float(parsed[1]) * units[parsed[2].lower()]
