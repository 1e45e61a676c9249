"""Coordinates for features that moved while the head was trained, where both ends of the way are known.

The change of a head is Δ = Σ_t η_t Σ_i e_i(t) φ(W₁(t) x_i)ᵀ: features along the way, not at one point of it. Halfway,
W₁ = (W₁(0) + W₁(T)) / 2, they fit best on average. What a single sample saw on average differs from halfway by some
combination of the change itself, W₁(T) − W₁(0) = Cᵀ X, whose parts grew at different times. So for a sample x = U z of
the span U of the change, preactivations

    W₁ x + (W₁(T) − W₁(0)) U b  =  [W₁ U, κ (W₁(T) − W₁(0)) U] (z, b / κ)

with r further numbers b of its own fit far better: features of the same form, with 2r columns, which any method can be
run on. (With weight decay the change is W₁(T) − c W₁(0), which is Cᵀ X again.) κ gives both halves the same
mean square, so b is a small part of (z, b / κ). What is meant is z.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import LoweredRows, Subspace
from exhume.attacks.foundation.retraction import to_norm
from exhume.features.rows import HeldRows, Rows, hold


@dataclass(frozen=True, eq=False)
class DriftCoordinates:
    """(z, b / κ) for samples x = U z; norms are those of the pair, unless they are free."""

    subspace: Subspace
    free_norms: bool = False

    @property
    def d(self) -> int:
        return self.subspace.d

    @property
    def r(self) -> int:
        return 2 * self.subspace.r

    def lift(self, coordinates: Float[Tensor, "m two_r"]) -> Float[Tensor, "m d"]:
        """U z, at the norm of the pair."""
        lifted = self.subspace.lift(coordinates[:, : self.subspace.r])
        return lifted if self.free_norms else coordinates.norm(dim=1, keepdim=True) * to_norm(lifted, 1.0)

    def lower(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m two_r"]:
        """(Uᵀx, 0)."""
        lowered = self.subspace.lower(rows)
        return torch.cat([lowered, torch.zeros_like(lowered)], dim=1)


def drifted_rows(values: Float[Tensor, "p r"], change: Rows, subspace: Subspace) -> HeldRows:
    """[W₁ U, κ (W₁(T) − c W₁(0)) U], from the first half and the change."""
    moved = hold(LoweredRows(change, subspace, torch.float64), dtype=torch.float64).values
    size = moved.norm().clamp_min(torch.finfo(torch.float64).tiny)
    return HeldRows(torch.cat([values, (moved * (values.double().norm().to(size) / size)).to(values)], dim=1))
