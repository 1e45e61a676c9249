"""Weights as they come back from a shorter format."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import UsageError

Format = Literal["fp16", "bf16", "int8", "int8-row"]
_FLOATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
_LEVELS = 127  # symmetric: −127 … 127


def quantise(weights: Float[Tensor, "k p"], kind: Format) -> Float[Tensor, "k p"]:
    """The weights rounded to the format and stored again in their own type.

    int8 is symmetric, w ≈ s q with whole numbers q from −127 to 127, and one s = max|w| / 127 for all weights, or
    ("int8-row") one for each output.

    >>> quantise(torch.tensor([[1.27, -0.014, 0.002]]), "int8")
    tensor([[ 1.2700, -0.0100,  0.0000]])
    """
    if kind in _FLOATS:
        rounded = weights.to(_FLOATS[kind])
        if not bool(rounded.isfinite().all()):
            largest = torch.finfo(rounded.dtype).max
            raise UsageError(
                f"expected weights of at most {largest:g} to publish as {kind}, found {float(weights.abs().max()):g}"
            )
        return rounded.to(weights.dtype)
    exact = weights.double()
    largest_weight = exact.abs().amax(dim=1, keepdim=True) if kind == "int8-row" else exact.abs().max()
    step = largest_weight / _LEVELS
    step = torch.where(step > 0, step, 1.0)  # an output that is zero stays zero
    return ((exact / step).round() * step).to(weights.dtype)
