"""Gaussian weights from an explicit stream."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds


def normal_head(outputs: int, width: int, seed: int) -> Float[Tensor, "k h"]:
    """A head with entries N(0, 1 / width), in float32 for the same reason."""
    return torch.randn(outputs, width, generator=seeds.generator(seed, "network")) / math.sqrt(width)
