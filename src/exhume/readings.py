"""What a layer reads of an input, as a public function of it: the patches of a convolution, or frozen features.

A reading r takes an input x ∈ R^d to v pieces of c numbers each. The change of the layer is made of pieces, and an
attack on it brings back pieces: v = 1 for a dense layer, one piece per place of the kernel for a convolution. Records
that somebody has are held against recovered pieces through r.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.features.module import ModuleFeatures

Pair = tuple[int, int]


@runtime_checkable
class Reading(Protocol):
    @property
    def pieces(self) -> int:
        """v: how many pieces an input has."""

    @property
    def noun(self) -> tuple[str, str]:
        """What a piece is called, and what several are."""

    @property
    def picture_shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width of a piece, where it is a picture."""

    def __call__(self, inputs: Float[Tensor, "n d"]) -> Float[Tensor, "n v c"]: ...


@dataclass(frozen=True)
class Patches:
    """The patches that a kernel sees, row after row; at the border of a padded image they contain zeros."""

    image_shape: tuple[int, int, int]
    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    @classmethod
    def of(cls, layer: nn.Conv2d, image_shape: tuple[int, int, int]) -> "Patches | None":
        """None for what has no such patches: groups (a channel then reads part of a patch), padding other than zeros,
        and "same" padding that differs between two sides."""
        reach = tuple(step * (side - 1) for side, step in zip(layer.kernel_size, layer.dilation, strict=True))
        padding = layer.padding
        if padding == "valid":
            padding = (0, 0)
        elif padding == "same" and not any(total % 2 for total in reach):
            padding = tuple(total // 2 for total in reach)
        if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(padding, str):
            return None
        return cls(image_shape, *(_pair(value) for value in (layer.kernel_size, layer.stride, padding, layer.dilation)))

    @property
    def grid(self) -> Pair:
        """Places of the kernel: rows and columns."""
        sides = zip(self.image_shape[1:], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        rows, columns = (
            (side + 2 * pad - step * (kernel - 1) - 1) // stride + 1 for side, kernel, stride, pad, step in sides
        )
        return rows, columns

    @property
    def pieces(self) -> int:
        return math.prod(self.grid)

    @property
    def noun(self) -> tuple[str, str]:
        return "patch", "patches"

    @property
    def picture_shape(self) -> tuple[int, int, int]:
        return self.image_shape[0], *self.kernel

    def __call__(self, inputs: Float[Tensor, "n d"]) -> Float[Tensor, "n v c"]:
        images = inputs.reshape(len(inputs), *self.image_shape)
        columns = nn.functional.unfold(images, self.kernel, self.dilation, self.padding, self.stride)
        return columns.transpose(1, 2)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The output of layers that training did not change, in float64."""

    extractor: ModuleFeatures

    @property
    def pieces(self) -> int:
        return 1

    @property
    def noun(self) -> tuple[str, str]:
        return "embedding", "embeddings"

    @property
    def picture_shape(self) -> None:
        return None

    def __call__(self, inputs: Float[Tensor, "n d"]) -> Float[Tensor, "n 1 c"]:
        return self.extractor(inputs.to(device=self.extractor.device, dtype=torch.float64))[:, None]


def _pair(values: tuple[int, ...]) -> Pair:
    first, second = values
    return first, second
