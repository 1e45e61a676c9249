"""The prior on images inside a subspace that the data are known to lie in.

With x = U z and x ~ N(0, C), C diagonal in the frequencies, the coordinates have the covariance UᵀCU = Q diag(variance)
Qᵀ. In the coordinates Qᵀz, those of largest variance first, it is diagonal again: "coarse" means what images of the
subspace have most of.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.prior.spectrum import Spectrum
from exhume.frequencies import ImageShape, to_frequencies

LEAST_SHARE = 1e-6  # of the mean variance: no direction of the subspace is impossible


@dataclass(frozen=True, eq=False)
class SpanBasis:
    """z = Q y with `directions` Q (c × r); like `ImageBasis`, but for coordinates of a subspace of c dimensions."""

    directions: Float[Tensor, "c r"]
    variance: Float[Tensor, " r"]

    @classmethod
    def inside(cls, subspace: Subspace, spectrum: Spectrum, shape: ImageShape) -> "SpanBasis":
        """All directions; their mean variance is 1, so that rows of norm √c are expected."""
        columns = to_frequencies(subspace.basis.double().T, shape).flatten(start_dim=1)
        covariance = (columns * spectrum.variance(shape).double().flatten()) @ columns.T
        values, vectors = torch.linalg.eigh(covariance)
        variance = values.flip(0) / values.mean()
        return cls(vectors.flip(1), variance.clamp_min(LEAST_SHARE))

    @property
    def d(self) -> int:
        return self.directions.shape[0]

    @property
    def r(self) -> int:
        return len(self.variance)

    def cut(self, r: int) -> "SpanBasis":
        return SpanBasis(self.directions[:, :r], self.variance[:r])

    def lift(self, coordinates: Float[Tensor, "m r"]) -> Float[Tensor, "m c"]:
        return coordinates @ self.directions.to(coordinates).T

    def lower(self, rows: Float[Tensor, "m c"]) -> Float[Tensor, "m r"]:
        return rows @ self.directions.to(rows)
