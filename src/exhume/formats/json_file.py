"""JSON files from outside, of bounded size."""

from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.regular_file import regular
from exhume.strict_json import parse_json

LARGEST_JSON = 64 * 2**20


def read_json_value(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ExhumeError(f"expected at most {LARGEST_JSON:,} bytes of JSON at {path}, found more")
        return parse_json(regular(path).read_bytes())
    except OSError as problem:
        raise ExhumeError(f"expected a readable file {path}, found: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise ExhumeError(f"expected JSON in {path}, found something else: {problem}") from problem


def read_json_object(path: Path) -> dict[str, Any]:
    value = read_json_value(path)
    if not isinstance(value, dict):
        raise ExhumeError(f"expected a JSON object in {path}, found {type(value).__name__}")
    return value


def parse_object(content: bytes | str, what: str) -> dict[str, Any]:
    """The object of a JSON text inside another file; `what` names it."""
    try:
        value = parse_json(content)
    except (ValueError, RecursionError) as problem:
        raise ExhumeError(f"expected JSON in {what}, found something else: {problem}") from problem
    if not isinstance(value, dict):
        raise ExhumeError(f"expected a JSON object in {what}, found {type(value).__name__}")
    return value
