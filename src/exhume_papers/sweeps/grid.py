"""From lists in a spec to the points of a grid, with errors that say where they come from."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import ValidationError

from exhume.errors import ExhumeError, UsageError
from exhume.requests.request import Request
from exhume.validation import one_line

MOST_RUNS = 100_000

Place = Callable[[str, int, str | None], str]
"""Where something stands: the section, the number of the entry in it from 0, the key or None for the whole entry."""
Model = TypeVar("Model", bound=Request)


def in_python(section: str, entry: int, key: str | None) -> str:
    """
    >>> in_python("victim", 1, "ratio")
    'victim 2, ratio'
    """
    return f"{section} {entry + 1}" + (f", {key}" if key else "")


def named(written: Mapping[str, Any], section: str, entry: int, place: Place) -> dict[str, Any]:
    """The options under their names in Python, where dashes are underscores."""
    options = {key.replace("-", "_"): value for key, value in written.items()}
    if len(options) < len(written):
        raise UsageError(f"{place(section, entry, None)}: expected each option once, found one of them twice")
    return options


def refuse(options: Mapping[str, Any], reasons: Mapping[str, str], section: str, entry: int, place: Place) -> None:
    """Options that make no sense in this section, with the reason."""
    for key, reason in reasons.items():
        if key in options:
            where = place(section, entry, key)
            raise UsageError(f"{where}: expected no {key} here, found {options[key]!r}; leave it out: {reason}")


def points(options: Mapping[str, Any], section: str, entry: int, place: Place) -> Iterator[dict[str, Any]]:
    """One set of options for each combination of the values that lists offer, the last list changing fastest."""
    choices = {key: list(value) if isinstance(value, list | tuple) else [value] for key, value in options.items()}
    for key, values in choices.items():
        if not values:
            raise UsageError(f"{place(section, entry, key)}: expected at least one value in the list, found none")
    if math.prod(map(len, choices.values())) > MOST_RUNS:
        raise UsageError(f"{place(section, entry, None)}: expected at most {MOST_RUNS:,} combinations, found more")
    for point in itertools.product(*choices.values()):
        yield dict(zip(choices, point, strict=True))


def seeds_of(seeds: Any, where: str) -> Sequence[int]:
    listed = range(seeds) if type(seeds) is int and seeds <= MOST_RUNS else seeds
    fine = isinstance(listed, range | list | tuple) and all(type(seed) is int and 0 <= seed < 2**63 for seed in listed)
    if not fine or not listed:
        raise UsageError(f"{where}: expected a number of seeds or a list of whole numbers from 0, found {seeds!r}")
    return tuple(listed)


def checked(model: type[Model], fields: Mapping[str, Any], section: str, entry: int, place: Place) -> Model:
    try:
        with said_with(place(section, entry, None)):
            return model.complete().model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] and first["type"] != "missing" else None
        raise UsageError(f"{place(section, entry, key)}: {one_line(error, model)}") from None


@contextmanager
def said_with(where: str) -> Iterator[None]:
    """What goes wrong inside is said with the place that asked for it."""
    try:
        yield
    except ExhumeError as problem:
        raise type(problem)(f"{where}: {problem}") from problem
