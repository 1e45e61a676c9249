"""Back to the sphere after a step."""

import torch
from jaxtyping import Float
from torch import Tensor


def to_norm(rows: Float[Tensor, "m d"], norm: float) -> Float[Tensor, "m d"]:
    """Each row at the given length. A row that vanished stays zero rather than becoming NaN."""
    lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    return norm * (rows / lengths)
