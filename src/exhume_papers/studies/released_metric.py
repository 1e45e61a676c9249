"""The error as the first paper's released code measures it, to be read beside Eq. 12.

Eq. 12 has one sign per sample. The code takes absolute values element by element, on both sides, and then pairs rows:

    ρ' = 1/(n √d) Σ_i ‖ |x_i| − |x̂_π(i)| ‖₂,      π least in the sum of the squares.

It forgives every pixel its own sign, so random guesses come out lower: E(|a| − |b|)² = 2 − 4/π for standard normal a
and b, which is 0.85 before pairing, against √2 for Eq. 12.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.metrics.matching import UNMATCHED_DISTANCE, assign


def released_error(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> float:
    """ρ'; a sample that is left without a candidate counts 1, as it does for ρ.

    >>> released_error(torch.tensor([[3.0, -4.0], [0.0, 5.0]]), torch.tensor([[0.0, 5.0], [3.0, 4.0]]))
    0.0
    """
    x, y = samples.double().abs(), candidates.double().abs()
    squares = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
    rows, columns = assign(squares)
    distances = (x[rows] - y[columns]).norm(dim=1) / x.shape[1] ** 0.5
    missing = (len(x) - len(rows)) * UNMATCHED_DISTANCE
    return (distances.sum().item() + missing) / len(x)
