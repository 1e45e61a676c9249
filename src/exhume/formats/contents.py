"""What a reader hands back: arrays that are read when they are asked for, objects with members, plain values."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class StoredArray:
    """Numbers (or texts) in a file; `read` brings them into memory or maps them."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @classmethod
    def of(cls, name: str, values: np.ndarray) -> "StoredArray":
        return cls(name, values.shape, str(values.dtype), lambda: values)


@dataclass(frozen=True, eq=False)
class StoredObject:
    """An object that a file describes: the name of its class, and its members, which are no more than values.

    A member is a plain value, a `StoredArray`, another object, or a list or mapping of these.
    """

    where: str
    kind: str
    members: Mapping[str, Any]

    @property
    def class_name(self) -> str:
        return self.kind.rpartition(".")[2]

    def array(self, name: str) -> StoredArray | None:
        value = self.members.get(name)
        return value if isinstance(value, StoredArray) else None


@dataclass(frozen=True, eq=False)
class Contents:
    """One file. `values` are plain settings under dotted names."""

    kind: str
    arrays: Mapping[str, StoredArray] = field(default_factory=dict)
    objects: tuple[StoredObject, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def objects_of(self, *class_names: str) -> Iterator[StoredObject]:
        return (found for found in self.objects if found.class_name in class_names)
