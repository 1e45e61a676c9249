"""Things that go by a name, exhume's own and those of others: activations, sources of data.

Others come by call, or for every process by an entry point of the package that brings them:

    [project.entry-points."exhume.activations"]
    my-activation = "my_package.my_module:MY_ACTIVATION"

What an entry point names is loaded when somebody asks for it.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from exhume.errors import ExhumeError, UsageError


@runtime_checkable
class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def load_point(point: EntryPoint, what: str) -> Any:
    """What an entry point names; it has to have the same name itself."""
    try:
        found = point.load()
        name = found.name
    except Exception as problem:  # the code of others
        raise ExhumeError(
            f"expected {what} at {point.value} (entry point {point.name!r}), found {type(problem).__name__}: {problem}"
        ) from problem
    if name != point.name:
        raise ExhumeError(f"expected {what} {point.name!r} at {point.value}, found {name!r}")
    return found


class Registry(Generic[T]):
    """`group` is that of the entry points; `what` is one of them in words: "an activation"."""

    def __init__(self, group: str, what: str, own: Iterable[T] = ()) -> None:
        self.group, self.what = group, what
        self._known = {one.name: one for one in own}

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._known, *self._points)))

    def all(self) -> Mapping[str, T]:
        return {name: self.find(name) for name in self.names()}

    def get(self, name: str) -> T | None:
        if name not in self._known and name in self._points:
            self._known[name] = load_point(self._points[name], self.what)
        return self._known.get(name)

    def find(self, name: str) -> T:
        found = self.get(name)
        if found is None:
            raise UsageError(f"expected {self.what} out of {', '.join(self.names())}; found {name!r}")
        return found

    def add(self, new: T) -> T:
        if new.name in self.names():
            raise UsageError(f"expected a new name for {self.what}, found {new.name!r}, which is taken")
        self._known[new.name] = new
        return new

    @cached_property
    def _points(self) -> Mapping[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}
