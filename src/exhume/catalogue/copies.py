"""What each candidate is: a sample, one more copy of a sample, or neither."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from exhume.metrics.errors import RECOVERED_DISTANCE
from exhume.metrics.matching import to_norm


@dataclass(frozen=True)
class Copies:
    samples: int
    """Samples with a candidate within 0.1 sqrt(d), up to sign and norm."""
    extra: int
    """Candidates that are close to a sample which has one already."""
    blends: int
    """Candidates that are close to no sample."""


def count_copies(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> Copies:
    x = to_norm(samples.double(), 1.0)
    y = to_norm(candidates.double(), 1.0)
    # |x - s y|^2 = 2 - 2 |x.y| on the unit sphere
    cosines = (x @ y.T).abs()
    distances = (2 - 2 * cosines).clamp_min(0).sqrt()
    nearest = distances.min(dim=0)
    close = nearest.values < RECOVERED_DISTANCE
    found = set(nearest.indices[close].tolist())
    return Copies(len(found), int(close.sum()) - len(found), int((~close).sum()))
