"""The sphere of one norm: steps along it, and back to it after a step."""

import torch
from jaxtyping import Float
from torch import Tensor


def to_norm(rows: Float[Tensor, "m d"], norm: float) -> Float[Tensor, "m d"]:
    """Each row at the given length. A row that vanished stays zero rather than becoming NaN."""
    lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    return norm * (rows / lengths)


def tangent(directions: Float[Tensor, "m d"], candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """The part of each direction that is orthogonal to its candidate: norms stay as they are."""
    squares = candidates.square().sum(dim=1).clamp_min(torch.finfo(candidates.dtype).tiny)
    along = (directions * candidates).sum(dim=1) / squares
    return directions - along[:, None] * candidates
