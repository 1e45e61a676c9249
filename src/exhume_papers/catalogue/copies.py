"""What each candidate is: a sample, one more copy of a sample, idle, or a blend."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from exhume.metrics.errors import RECOVERED_DISTANCE
from exhume.metrics.matching import to_norm

IDLE = 1e-3  # of the largest coefficient


@dataclass(frozen=True, eq=False, repr=False)
class Copies:
    samples: int
    """Samples with a candidate within 0.1 sqrt(d), up to sign and norm."""
    spare: Bool[Tensor, " m"]
    """Candidates that are close to a sample which has a closer one."""
    idle: Bool[Tensor, " m"]
    """Candidates that are close to no sample, and have next to no coefficient."""

    @property
    def blends(self) -> int:
        """Candidates that are close to no sample and stand for something nevertheless."""
        return len(self.spare) - self.samples - int(self.spare.sum()) - int(self.idle.sum())


def tell_apart(
    samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"]
) -> Copies:
    x = to_norm(samples.double(), 1.0)
    y = to_norm(candidates.double(), 1.0)
    # |x - s y|^2 = 2 - 2 |x.y| on the unit sphere
    cosines = (x @ y.T).abs()
    distances = (2 - 2 * cosines).clamp_min(0).sqrt()
    nearest = distances.min(dim=0)
    close = nearest.values < RECOVERED_DISTANCE
    spare = close.clone()
    for sample in set(nearest.indices[close].tolist()):
        spare[distances[sample].argmin()] = False
    sizes = coefficients.double().norm(dim=1)
    return Copies(int(close.sum() - spare.sum()), spare, ~close & (sizes < IDLE * sizes.max()))
