"""Things that go by a name, exhume's own and those of others: activations, sources of data.

Others come by call, or for every process by an entry point of the package that brings them:

    [project.entry-points."exhume.activations"]
    my-activation = "my_package.my_module:MY_ACTIVATION"
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeVar, runtime_checkable

from exhume.errors import ExhumeError, UsageError


@runtime_checkable
class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """`group` is that of the entry points; `what` is one of them in words: "an activation"."""

    def __init__(self, group: str, what: str, own: Iterable[T]) -> None:
        self.group, self.what = group, what
        self._known = {one.name: one for one in own}

    def all(self) -> Mapping[str, T]:
        return {**self._of_packages, **self._known}

    def find(self, name: str) -> T:
        found = self._known.get(name) or self._of_packages.get(name)
        if found is None:
            raise UsageError(f"expected {self.what} out of {', '.join(self.all())}; found {name!r}")
        return found

    def add(self, new: T) -> T:
        if new.name in self.all():
            raise UsageError(f"expected a new name for {self.what}, found {new.name!r}, which is taken")
        self._known[new.name] = new
        return new

    def forget(self, name: str) -> None:
        """Undoes `add`."""
        del self._known[name]

    @cached_property
    def _of_packages(self) -> Mapping[str, T]:
        found: dict[str, T] = {}
        for point in entry_points(group=self.group):
            try:
                loaded: T = point.load()
                found[loaded.name] = loaded
            except (ImportError, AttributeError) as problem:
                raise ExhumeError(
                    f"expected {self.what} at {point.value} (entry point {point.name!r}), found: {problem}"
                ) from problem
        return found
