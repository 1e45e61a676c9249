"""Coordinates of candidates inside a subspace: rows of norm · B z / ||B z||, themselves coordinates of x = U (B z).

B is the metric of the search, as S is for whole pictures (`modules/coordinates.py`): for z ~ N(0, I) the candidates
U B z are random smooth pictures projected on the subspace, because B Bᵀ = Uᵀ S Sᵀ U. Without pictures B = I.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.modules.coordinates import Coordinates


@dataclass(frozen=True, eq=False)
class SpanCoordinates:
    norm: float | None
    metric: Float[Tensor, "r r"]

    @classmethod
    def plain(cls, norm: float | None, r: int, like: Tensor) -> "SpanCoordinates":
        return cls(norm, torch.eye(r).to(like))

    @classmethod
    def smooth(
        cls, norm: float | None, subspace: Subspace, image_shape: tuple[int, int, int], power: float
    ) -> "SpanCoordinates":
        basis = subspace.basis.double()
        pictures = Coordinates.smooth(None, image_shape, power, basis)
        spread = pictures.gradient_at(basis.T, basis.T.contiguous())  # Uᵀ S
        covariance = spread @ spread.T
        covariance += 1e-12 * covariance.diagonal().mean() * torch.eye(len(covariance)).to(covariance)
        return cls(norm, torch.linalg.cholesky(covariance).to(subspace.basis))

    def rows_at(self, z: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        spread = z @ self.metric.T
        return spread if self.norm is None else spread * (self.norm / _lengths(spread))

    def gradient_at(self, z: Float[Tensor, "m r"], gradient: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        """A gradient in the rows, carried to z."""
        if self.norm is not None:
            spread = z @ self.metric.T
            units = spread / _lengths(spread)
            along = (gradient * units).sum(dim=1, keepdim=True)
            gradient = (gradient - along * units) * (self.norm / _lengths(spread))
        return gradient @ self.metric

    def coordinates_of(self, candidates: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        """z with rows_at(z) = candidates, for candidates of the norm."""
        return torch.linalg.solve_triangular(self.metric, candidates.T, upper=False).T


def _lengths(rows: Float[Tensor, "m r"]) -> Float[Tensor, "m 1"]:
    return rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
