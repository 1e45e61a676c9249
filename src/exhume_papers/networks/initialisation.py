"""Gaussian weights from an explicit stream."""

import torch
from torch import Tensor


def draw_normal(parameter: Tensor, std: float, stream: torch.Generator) -> None:
    """Fills a parameter with N(0, std²). Drawn in float32, so that every precision starts from the same numbers."""
    with torch.no_grad():
        parameter.copy_(std * torch.randn(parameter.shape, generator=stream))
