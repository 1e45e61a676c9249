"""Checks the types and shapes of every call in the tests; an int will do where a float is asked for.

jaxtyping's import hook decorates every function with `jaxtyping.jaxtyped`, which binds the arguments of a call to its
signature, checks them, and checks them once more with the result. `jaxtyped` below makes the same checks in one call of
beartype, and gives a function sizes of its own only where annotations name some.
Of what is called many times in one test, the first calls are checked: an attack makes millions of the same ones.
"""

import functools
import inspect
import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass
from types import CodeType, FunctionType
from typing import Any, NamedTuple

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
_made: dict[CodeType, int] = {}


def begin_test() -> None:
    """From here on, the first calls of every function are checked again."""
    _made.clear()


@functools.wraps(_THEIRS)
def jaxtyped(*, typechecker: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the import hook asks for, once for each function and class."""

    def decorate(decorated: Any) -> Any:
        if isinstance(decorated, type):
            if is_dataclass(decorated) and "__init__" in vars(decorated):
                type.__setattr__(decorated, "__init__", _checked(vars(decorated)["__init__"]))
            return decorated
        if inspect.isgeneratorfunction(decorated) or not inspect.isfunction(decorated):
            return _THEIRS(decorated, typechecker=typechecker)
        return _checked(decorated)

    return decorate


def _checked(function: Any) -> Any:
    if not function.__annotations__:
        return function
    hints = None if "<locals>" in function.__qualname__ else _all_hints(function)
    checked = None if hints is None else _by_beartype(function, hints)
    code = function.__code__

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal checked
        __tracebackhide__ = True
        _made[code] = made = _made.get(code, 0) + 1
        if made > CALLS or jaxtyping.config.jaxtyping_disable:
            return function(*arguments, **named)
        if checked is None:  # a name that it uses was not there yet, or it is defined anew in every call of another one
            checked = _by_beartype(function, _hints(function))
        if not checked.sizes:
            return checked.function(*arguments, **named)
        with _OWN_SIZES:
            return checked.function(*arguments, **named)

    return call


class _Checked(NamedTuple):
    """`sizes`: its annotations name sizes, which are those of one call."""

    function: Any
    sizes: bool
    hints: dict[str, Any]


_known: dict[CodeType, _Checked] = {}


def _by_beartype(function: Any, hints: dict[str, Any]) -> _Checked:
    known = _known.get(function.__code__)
    if known is None or known.hints != hints:
        written, function.__annotations__ = function.__annotations__, hints
        try:
            known = _Checked(check(function), any(map(_names_sizes, hints.values())), hints)
        finally:
            function.__annotations__ = written
        _known[function.__code__] = known
        return known
    made = known.function
    if "__beartype_func" not in (made.__kwdefaults__ or {}):  # nothing of it can be checked
        return known._replace(function=function)
    again = FunctionType(made.__code__, made.__globals__, made.__name__, made.__defaults__, made.__closure__)
    again.__kwdefaults__ = {**made.__kwdefaults__, "__beartype_func": function}
    return known._replace(function=again)


def _all_hints(function: Any) -> dict[str, Any] | None:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        return None


def _hints(function: Any) -> dict[str, Any]:
    """The annotations without those that name what cannot be looked up, as jaxtyping leaves them out."""
    whole = _all_hints(function)
    if whole is not None:
        return whole
    hints: dict[str, Any] = {}
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
