"""Checks the types and shapes of every call in the tests; an int will do where a float is asked for.

jaxtyping's import hook decorates every function with `jaxtyping.jaxtyped`, which binds the arguments of a call to its
signature, checks them, and checks them once more with the result. `jaxtyped` below makes the same checks in one call of
beartype, which is made ready at the first call, and gives a function sizes of its own only where annotations name some.
Of what is called many times in one test, the first calls are checked: an attack makes millions of the same ones.
"""

import functools
import inspect
import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype


class Misfit(jaxtyping.TypeCheckError):
    """The first words are those of jaxtyping."""

    def __init__(self, found: str) -> None:
        super().__init__(f"Type-check error: {found}")


CALLS = 50  # of one function that are checked in a test
check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=Misfit))
_THEIRS = inspect.unwrap(jaxtyping.jaxtyped)  # this module may be loaded a second time, for its doctests
_OWN_SIZES = _THEIRS("context")
_test = 0


def begin_test() -> None:
    """From here on, the first calls of every function are checked again."""
    global _test
    _test += 1


@functools.wraps(_THEIRS)
def jaxtyped(*, typechecker: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the import hook asks for, once for each function and class."""

    def decorate(decorated: Any) -> Any:
        if isinstance(decorated, type):
            if is_dataclass(decorated) and "__init__" in vars(decorated):
                decorated.__init__ = _checked(decorated.__init__)  # type: ignore[misc]
            return decorated
        if inspect.isgeneratorfunction(decorated) or not inspect.isfunction(decorated):
            return _THEIRS(decorated, typechecker=typechecker)
        return _checked(decorated)

    return decorate


def _checked(function: Any) -> Any:
    if not function.__annotations__:
        return function
    checked: Callable[..., Any] | None = None
    sizes, made, test = False, 0, 0

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal checked, sizes, made, test
        __tracebackhide__ = True
        made, test = made + 1 if test == _test else 1, _test
        if made > CALLS or jaxtyping.config.jaxtyping_disable:
            return function(*arguments, **named)
        if checked is None:
            hints = _hints(function)
            sizes = any(map(_names_sizes, hints.values()))
            checked = _by_beartype(function, hints)
        if not sizes:
            return checked(*arguments, **named)
        with _OWN_SIZES:
            return checked(*arguments, **named)

    return call


def _by_beartype(function: Any, hints: dict[str, Any]) -> Callable[..., Any]:
    written = function.__annotations__
    function.__annotations__ = hints
    try:
        return check(function)
    finally:
        function.__annotations__ = written


def _hints(function: Any) -> dict[str, Any]:
    """The annotations without those that name what cannot be looked up, as jaxtyping leaves them out."""
    with suppress(Exception):
        return typing.get_type_hints(function, include_extras=True)
    hints = {}
    for name, annotation in function.__annotations__.items():
        with suppress(Exception):
            alone = type("Alone", (), {"__annotations__": {name: annotation}})
            hints |= typing.get_type_hints(alone, function.__globals__, include_extras=True)
    return hints


def _names_sizes(annotation: Any) -> bool:
    if isinstance(annotation, list | tuple):
        return any(map(_names_sizes, annotation))
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_names_sizes, typing.get_args(annotation)))
