"""Gaussian weights from an explicit stream."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds


def draw_normal(parameter: Tensor, std: float, stream: torch.Generator) -> None:
    """Fills a parameter with N(0, std²). Drawn in float32, so that every precision starts from the same numbers."""
    with torch.no_grad():
        parameter.copy_(std * torch.randn(parameter.shape, generator=stream))


def normal_head(outputs: int, width: int, seed: int) -> Float[Tensor, "k h"]:
    """A head with entries N(0, 1 / width), in float32 for the same reason."""
    return torch.randn(outputs, width, generator=seeds.generator(seed, "network")) / math.sqrt(width)
