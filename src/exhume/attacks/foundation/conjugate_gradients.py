"""Conjugate gradients for A x = y, with A symmetric and not negative, by products with A alone.

x may be one tensor or several that belong together (`Stacked`). A preconditioner takes what is left of y to a guess of
the x that it asks for.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

S = TypeVar("S", bound="Stacked")
T = TypeVar("T")


@runtime_checkable
class Vector(Protocol):
    def __add__(self: T, other: T, /) -> T: ...
    def __sub__(self: T, other: T, /) -> T: ...
    def __rmul__(self: T, factor: float, /) -> T: ...


class Stacked:
    """A frozen dataclass of tensors that is added, scaled and multiplied as one long vector."""

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))  # type: ignore[arg-type]

    def __add__(self: S, other: S) -> S:
        return type(self)(*(mine + its for mine, its in zip(self.parts, other.parts, strict=True)))

    def __sub__(self: S, other: S) -> S:
        return type(self)(*(mine - its for mine, its in zip(self.parts, other.parts, strict=True)))

    def __rmul__(self: S, factor: float) -> S:
        return type(self)(*(factor * mine for mine in self.parts))


V = TypeVar("V", bound=Vector)


@dataclass(frozen=True, eq=False)
class Solution(Generic[V]):
    """`left` is y − A x; `settled`: whether it fell as far as was asked."""

    x: V
    left: V
    settled: bool


def conjugate_gradients(
    times: Callable[[V], V], wanted: V, products: int, share: float, condition: Callable[[V], V] = lambda left: left
) -> Solution[V]:
    """At most so many products; ends before where the square of the conditioned rest is at most a `share` of its start.

    It also ends along a direction that A does not bend: A is singular there, or the numbers underflow.
    """
    solution = _zero(wanted)
    left = wanted
    conditioned = condition(left)
    direction, product = conditioned, dot(left, conditioned)
    first = product
    for _ in range(products):
        if not product > 0:
            break
        image = times(direction)
        bend = dot(direction, image)
        if not bend > 0:
            break
        length = product / bend
        solution, left = solution + length * direction, left - length * image
        conditioned = condition(left)
        new = dot(left, conditioned)
        if not new > share * first:
            return Solution(solution, left, True)
        direction, product = conditioned + (new / product) * direction, new
    return Solution(solution, left, first == 0)


def dot(one: Vector, other: Vector) -> float:
    """
    >>> dot(torch.ones(2, 3), torch.ones(2, 3))
    6.0
    """
    products = [(mine * its).sum() for mine, its in zip(_parts(one), _parts(other), strict=True)]
    return float(torch.stack(products).sum())


def _parts(vector: Vector) -> tuple[Tensor, ...]:
    return vector.parts if isinstance(vector, Stacked) else (torch.as_tensor(vector),)


def _zero(like: V) -> V:
    """Not a difference or a product, which would keep what is not finite."""
    if isinstance(like, Stacked):
        return type(like)(*(torch.zeros_like(part) for part in like.parts))
    return cast(V, torch.zeros_like(torch.as_tensor(like)))
