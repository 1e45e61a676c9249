"""Values that users write as text, and what they mean."""

import re

from exhume.errors import UsageError


def parse_names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise UsageError(f"expected names separated by commas, found {text!r}")
    return names


def parse_counts(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(count) for count in text.split(","))
    except ValueError:
        raise UsageError(f"expected whole numbers separated by commas, found {text!r}") from None


def parse_samples(text: str) -> int | None:
    """
    >>> parse_samples("auto"), parse_samples("20")
    (None, 20)
    """
    if text == "auto":
        return None
    if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < 1:
        raise UsageError(f"expected --samples auto or a whole number from 1, found {text!r}")
    return int(text)
