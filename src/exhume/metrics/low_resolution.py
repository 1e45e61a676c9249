"""How far candidates are from the samples at a resolution: cosines between images of r frequencies.

Coarse images resemble each other, so a cosine says little alone: beside it stands the share of samples that another
sample of the same data would have passed for.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.frequencies import ImageShape, lowest
from exhume.metrics.matching import assign, check_rows, to_norm

RECOVERED_COSINE = 0.9


@dataclass(frozen=True, eq=False, repr=False)
class LowResolution:
    frequencies: int
    cosines: Float[Tensor, " n"]
    """|cos| of each sample and its candidate, one to one; 0 without candidate."""
    lookalikes: float
    """The share of samples with |cos| > 0.9 to another sample."""

    @property
    def recovered_fraction(self) -> float:
        return (self.cosines > RECOVERED_COSINE).double().mean().item()


def low_resolution(
    samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"], shape: ImageShape, r: int
) -> LowResolution:
    """Samples and candidates at resolution r, in the assignment with the largest sum of |cos|."""
    check_rows(samples, candidates)
    truth, found = (to_norm(lowest(rows.detach().cpu().double(), shape, r), 1.0) for rows in (samples, candidates))
    alike = (truth @ found.T).abs()
    rows, columns = assign(-alike)
    cosines = torch.zeros(len(truth), dtype=torch.float64)
    cosines[rows] = alike[rows, columns]
    others = (truth @ truth.T).abs() - 2 * torch.eye(len(truth), dtype=torch.float64)
    return LowResolution(r, cosines, (others.amax(dim=1) > RECOVERED_COSINE).double().mean().item())
