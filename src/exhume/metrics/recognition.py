"""How many samples can be recognised in what an attack found: a coarser question than the error."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.metrics.matching import check_rows, to_norm

RECOGNISED_COSINE = 0.9


def nearest_cosines(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> Float[Tensor, " n"]:
    """The largest |cosine| that each sample has with any candidate; 0 without candidates.

    >>> nearest_cosines(torch.eye(2), torch.tensor([[-3.0, 0.0]]))
    tensor([1., 0.], dtype=torch.float64)
    """
    check_rows(samples, candidates)
    if len(candidates) == 0:
        return torch.zeros(len(samples), dtype=torch.float64)
    wanted, found = (to_norm(rows.detach().cpu().double(), 1.0) for rows in (samples, candidates))
    return (wanted @ found.T).abs().max(dim=1).values


def recognised(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> int:
    """Samples that some candidate has a |cosine| above 0.9 with; candidates may serve for several."""
    return int((nearest_cosines(samples, candidates) > RECOGNISED_COSINE).sum())
