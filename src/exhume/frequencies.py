"""Images as frequencies in opponent colours, and what an image of less resolution is.

Coordinates are those of the orthonormal two-dimensional cosine transform of brightness, of red against blue, and of
green against both. In them photographs are nearly uncorrelated, and their variance falls with frequency f and from one
colour axis to the next, by a law that hardly depends on what they show:

    variance ∝ (colour · (1 + f)^−1.3)²,     colour = 1, 1/4, 1/8.

Ordered by that law, the first r coordinates of an image are the image at *resolution* r.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

ImageShape = tuple[int, int, int]  # channels, height, width

FALL = 1.3  # of the amplitude with frequency; photographs of 32 and of 64 pixels agree on it up to about f = 16
COLOUR_AMPLITUDES = (1.0, 0.25, 0.125)


def natural_variance(shape: ImageShape) -> Float[Tensor, "c height width"]:
    """The law, with mean 1: the variances of rows of norm √d."""
    channels = shape[0]
    colours = torch.tensor(COLOUR_AMPLITUDES if channels == 3 else (1.0,) * channels, dtype=torch.float64)
    variance = (colours[:, None, None] * (1 + frequencies(shape)) ** -FALL).square()
    return variance / variance.mean()


def resolution_order(shape: ImageShape) -> Int[Tensor, " d"]:
    """All coordinates, those that photographs have most energy in first."""
    return natural_variance(shape).flatten().argsort(descending=True, stable=True)


def frequencies(shape: ImageShape) -> Float[Tensor, "height width"]:
    """f = sqrt(k² + l²), in half waves per image."""
    down, across = (torch.arange(side, dtype=torch.float64) for side in shape[1:])
    return (down[:, None].square() + across.square()).sqrt()


def to_frequencies(rows: Float[Tensor, "m d"], shape: ImageShape) -> Float[Tensor, "m c height width"]:
    """The orthonormal transform of images that are given as rows."""
    colours, down, across = (axis.to(rows) for axis in _axes(shape))
    return torch.einsum("ac,nckl->nakl", colours, down @ rows.reshape(-1, *shape) @ across.T)


def to_rows(coordinates: Float[Tensor, "m c height width"]) -> Float[Tensor, "m d"]:
    """The inverse transform."""
    channels, height, width = coordinates.shape[1:]
    colours, down, across = (axis.to(coordinates) for axis in _axes((channels, height, width)))
    return torch.einsum("ac,naij->ncij", colours, down.T @ coordinates @ across).flatten(start_dim=1)


def lowest(rows: Float[Tensor, "m d"], shape: ImageShape, r: int) -> Float[Tensor, "m r"]:
    """Images at resolution r, as coordinates."""
    return to_frequencies(rows, shape).flatten(start_dim=1)[:, resolution_order(shape)[:r].to(rows.device)]


def side_length(r: int, channels: int) -> int:
    """The side of square images with at most r numbers.

    >>> side_length(192, 3), side_length(300, 3)
    (8, 10)
    """
    return max(1, math.isqrt(r // channels))


def cosine_transform(size: int) -> Float[Tensor, "size size"]:
    """The orthonormal cosine transform, one frequency a row."""
    frequency = torch.arange(size, dtype=torch.float64)[:, None]
    place = torch.arange(size, dtype=torch.float64) + 0.5
    transform = torch.cos(math.pi * frequency * place / size) * math.sqrt(2 / size)
    transform[0] /= math.sqrt(2)
    return transform


def _axes(shape: ImageShape) -> tuple[Tensor, Tensor, Tensor]:
    """The cosine transform of three numbers has brightness as its first axis; other channels are left as they are."""
    channels, height, width = shape
    colours = cosine_transform(3) if channels == 3 else torch.eye(channels, dtype=torch.float64)
    return colours, cosine_transform(height), cosine_transform(width)
