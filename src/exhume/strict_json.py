"""JSON from files: what Python reads over and above the format is refused."""

import json
import math
from typing import Any


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text; a ValueError for anything that is none, NaN and half characters included.

    Python takes NaN and Infinity for numbers, 1e999 for Infinity, and half of a surrogate pair for a character. None of
    them can be written again, so they are refused where they come in. So is a key that an object has twice: of its two
    values each reader takes another.

    >>> parse_json('{"a": 1}')
    {'a': 1}
    """
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once)
        if "\\u" in text or not text.isascii():
            _check_characters(value)
    except RecursionError:
        raise ValueError("values nested too deeply") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:40]!r} twice in one object")
    return found


def _finite(written: str) -> float:
    value = float(written)
    return value if math.isfinite(value) else _refuse(written)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name[:40]}, which is no finite number")


def _check_characters(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("half of a character") from None
