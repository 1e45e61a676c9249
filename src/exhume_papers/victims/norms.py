"""The norm of the training rows, as far as an attacker may be told."""

import math

from jaxtyping import Float
from torch import Tensor

SAME_NORM = 1e-5  # relative: above the rounding of float32 rows, below any difference that is meant


def common_norm(inputs: Float[Tensor, "n d"]) -> float | None:
    """The norm that all rows share, None if they differ. √d is exact: its rounding would be a trace of the data."""
    norms, radius = inputs.double().norm(dim=1), math.sqrt(inputs.shape[1])
    if bool((norms / radius - 1).abs().max() <= SAME_NORM):
        return radius
    mean = float(norms.mean())
    return mean if mean > 0 and bool((norms / mean - 1).abs().max() <= SAME_NORM) else None
