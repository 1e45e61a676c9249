"""Synthetic rows: uniform on the sphere of radius sqrt(d), or on its cut with a random subspace."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.data.config import LabelRule

# Mixed into the seed, so that a victim drawn with the same number does not get the very same Gaussians as the data.
DATA_STREAM = 0x64617461


@dataclass(frozen=True)
class SphereSample:
    rows: Float[Tensor, "n d"]
    labels: Float[Tensor, " n"]


def draw_sphere(
    samples: int, dim: int, subspace: int | None, label_rule: LabelRule, noise: float, seed: int
) -> SphereSample:
    """Rows x_i uniform with ||x_i|| = sqrt(d), in double precision.

    With a subspace of r dimensions x_i = Q z_i, where Q (d × r) has orthonormal columns and z_i is uniform on the
    sphere of radius sqrt(d) in R^r. Labels with g ~ N(0, I/d): "linear" is y = Xg + eps with eps ~ N(0, noise), "sign"
    is y = sign(Xg).
    """
    state = np.random.SeedSequence([DATA_STREAM, seed]).generate_state(1, dtype=np.uint64)
    generator = torch.Generator().manual_seed(int(state[0]) >> 1)
    rank = dim if subspace is None else subspace
    gaussian = torch.randn(samples, rank, generator=generator, dtype=torch.float64)
    rows = gaussian * (math.sqrt(dim) / gaussian.norm(dim=1, keepdim=True))
    if subspace is not None:
        basis = torch.linalg.qr(torch.randn(dim, rank, generator=generator, dtype=torch.float64)).Q
        rows = rows @ basis.T
    direction = torch.randn(dim, generator=generator, dtype=torch.float64) / math.sqrt(dim)
    clean = rows @ direction
    if label_rule == "sign":
        return SphereSample(rows=rows, labels=torch.where(clean >= 0, 1.0, -1.0).to(torch.float64))
    errors = torch.randn(samples, generator=generator, dtype=torch.float64)
    return SphereSample(rows=rows, labels=clean + math.sqrt(noise) * errors)
