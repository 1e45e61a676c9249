"""What the features of a network are made from: code that builds it, and tensors to load into it.

A network is not stored as an object, because loading one would run whatever its file says. The code is named, as
`package.module:factory`, and whoever loads an observation decides whether to run it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from exhume.errors import UsageError
from exhume.networks.loading import names_a_factory

MOST_NUMBERS = 2**31  # of one input
DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, eq=False, repr=False)
class NetworkSource:
    """A factory, its arguments (JSON values), and the weights that it gets.

    `state` is the published state dict without the tensors of the head, on which features do not depend. With
    `initial_state`, the same at the start of training, features are the average of both networks'. The head reads a
    vector that is `feature_shape` flattened (None: not known), whose coordinates along `group_axis` (None: none) are
    channels, or coordinates of tokens. With `bias` there is one more feature, constant 1.
    """

    factory: str
    head: str
    input_shape: tuple[int, ...]
    state: Mapping[str, Tensor]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    initial_state: Mapping[str, Tensor] | None = None
    dtype: torch.dtype = torch.float32
    bias: bool = False
    feature_shape: tuple[int, ...] | None = None
    group_axis: int | None = None

    def __post_init__(self) -> None:
        if not names_a_factory(self.factory):
            raise UsageError(f"expected a model as package.module:factory, found {self.factory!r}")
        if not self.input_shape or min(self.input_shape) < 1 or self.d > MOST_NUMBERS:
            raise UsageError(f"expected the shape of one input, found {str(list(self.input_shape))[:80]}")
        if self.dtype not in DTYPES.values():
            raise UsageError(f"expected a network in {', '.join(DTYPES)}, found {self.dtype}")
        if self.group_axis is not None and not 0 <= self.group_axis < len(self.feature_shape or ()):
            raise UsageError(f"expected an axis of {self.feature_shape} to group features, found {self.group_axis}")

    @property
    def d(self) -> int:
        return math.prod(self.input_shape)

    def describe(self) -> dict[str, Any]:
        """All but the tensors, as JSON values."""
        return {
            "factory": self.factory,
            "arguments": dict(self.arguments),
            "head": self.head,
            "input_shape": list(self.input_shape),
            "d": self.d,
            "dtype": str(self.dtype).removeprefix("torch."),
            "bias": self.bias,
            "feature_shape": None if self.feature_shape is None else list(self.feature_shape),
            "group_axis": self.group_axis,
            "averaged": self.initial_state is not None,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tensors under the names that they have in a file."""
        named = {f"state.{name}": tensor for name, tensor in self.state.items()}
        return named | {f"initial.{name}": tensor for name, tensor in (self.initial_state or {}).items()}

    @classmethod
    def restore(cls, described: Any, tensors: Mapping[str, Tensor]) -> "NetworkSource":
        """The twin of `describe` and `tensors`. Raises KeyError, TypeError or UsageError for what makes no sense."""
        shape, feature_shape, axis = described["input_shape"], described["feature_shape"], described["group_axis"]
        for sizes in (shape, feature_shape or []):
            if not isinstance(sizes, list) or not all(type(size) is int and 0 < size < 2**31 for size in sizes):
                raise UsageError(f"expected a list of sizes, found {sizes}")
        texts = (described["factory"], described["head"], described["dtype"])
        if not all(isinstance(text, str) and text.isprintable() for text in texts) or texts[2] not in DTYPES:
            raise UsageError(f"expected a factory, a head and a precision, found {texts}")
        flags, arguments = (described["bias"], described["averaged"]), described["arguments"]
        if not all(isinstance(flag, bool) for flag in flags) or not isinstance(arguments, dict):
            raise UsageError(f"expected the bias and averaging as true or false, found {flags}")
        if not (axis is None or type(axis) is int):
            raise UsageError(f"expected the number of an axis, found {axis!r}")
        return cls(
            factory=texts[0],
            head=texts[1],
            input_shape=tuple(shape),
            state=_below("state.", tensors),
            arguments=arguments,
            initial_state=_below("initial.", tensors) if flags[1] else None,
            dtype=DTYPES[texts[2]],
            bias=flags[0],
            feature_shape=None if feature_shape is None else tuple(feature_shape),
            group_axis=axis,
        )


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
