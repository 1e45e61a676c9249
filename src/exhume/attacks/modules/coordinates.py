"""Coordinates in which candidates are searched: x̂ = norm · S z / ||S z||, one row z a candidate.

A quasi-Newton method starts from the metric of its coordinates: what is large in S z for a small z moves first.
Photographs have little energy at high frequencies, about 1 / f in amplitude, and little in colour differences. With
S = (colour axes) ⊗ (two-dimensional cosine transform) scaled that way, a random z is a random smooth picture, the
search finds coarse structure first and details after, and bad minima that noise-like candidates fall into are left
aside. S is invertible: every image can still be reached, and the loss is what it was. Without an image shape S = I.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.frequencies import cosine_transform

CHROMA = 0.4  # amplitude of colour differences over that of brightness


class AtNorm(ABC):
    """x̂ = norm · S z / ||S z||, or S z where norms are free, for a linear S that a subclass has."""

    norm: float | None

    @abstractmethod
    def spread(self, z: Float[Tensor, "m f"]) -> Float[Tensor, "m d"]:
        """S z."""

    @abstractmethod
    def gather(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m f"]:
        """Sᵀ x."""

    def rows_at(self, z: Float[Tensor, "m f"]) -> Float[Tensor, "m d"]:
        """The candidates at coordinates z."""
        spread = self.spread(z)
        return spread if self.norm is None else spread * (self.norm / _lengths(spread))

    def gradient_at(self, z: Float[Tensor, "m f"], gradient: Float[Tensor, "m d"]) -> Float[Tensor, "m f"]:
        """A gradient in the candidates, carried to z."""
        if self.norm is not None:
            spread = self.spread(z)
            lengths = _lengths(spread)
            units = spread / lengths
            along = (gradient * units).sum(dim=1, keepdim=True)
            gradient = (gradient - along * units) * (self.norm / lengths)
        return self.gather(gradient)


def _lengths(rows: Float[Tensor, "m d"]) -> Float[Tensor, "m 1"]:
    return rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)


@dataclass(frozen=True, eq=False, repr=False)
class Coordinates(AtNorm):
    """`amplitude` c × height × width, with the axes' transforms; None of them for data that are not images.

    `norm` is that of every sample; None leaves norms free.
    """

    norm: float | None
    colours: Float[Tensor, "c c"] | None = None
    rows: Float[Tensor, "height height"] | None = None
    columns: Float[Tensor, "width width"] | None = None
    amplitude: Float[Tensor, "c height width"] | None = None

    @classmethod
    def plain(cls, norm: float | None) -> "Coordinates":
        return cls(norm)

    @classmethod
    def smooth(cls, norm: float | None, image_shape: tuple[int, int, int], power: float, like: Tensor) -> "Coordinates":
        """Amplitude (1 + f)^−power at frequency f; mean square 1, so that z ~ N(0, I) gives rows of norm about √d."""
        channels, height, width = image_shape
        down, across = torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64)
        falling = (1 + (down[:, None].square() + across.square()).sqrt()) ** -power
        colour = torch.full((channels,), CHROMA if channels == 3 else 1.0, dtype=torch.float64)
        colour[0] = 1.0
        amplitude = colour[:, None, None] * falling
        amplitude /= amplitude.square().mean().sqrt()
        # the cosine transform of three numbers has the brightness as its first axis, differences as the others
        colours = cosine_transform(3) if channels == 3 else torch.eye(channels, dtype=torch.float64)
        return cls(
            norm,
            colours.to(like),
            cosine_transform(height).to(like),
            cosine_transform(width).to(like),
            amplitude.to(like),
        )

    def coordinates_of(self, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """z with rows_at(z) = candidates, for candidates of the norm."""
        if self.amplitude is None:
            return candidates
        return self.gather(candidates) / self.amplitude.reshape(-1).square()

    def spread(self, z: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        if self.amplitude is None:
            return z
        scaled = z.reshape(len(z), *self.amplitude.shape) * self.amplitude
        return torch.einsum("nakl,ac,ki,lj->ncij", scaled, self.colours, self.rows, self.columns).reshape(z.shape)

    def gather(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        if self.amplitude is None:
            return rows
        images = rows.reshape(len(rows), *self.amplitude.shape)
        found = torch.einsum("ncij,ac,ki,lj->nakl", images, self.colours, self.rows, self.columns)
        return (found * self.amplitude).reshape(rows.shape)


@dataclass(frozen=True, eq=False, repr=False)
class SpanCoordinates(AtNorm):
    """Inside a subspace, x = U (B z), where `metric` is B.

    For z ~ N(0, I) the candidates are random smooth pictures projected on it, because B Bᵀ = Uᵀ S Sᵀ U. Without
    pictures B = I.
    """

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
        spread = pictures.gather(basis.T.contiguous())  # Uᵀ S
        covariance = spread @ spread.T
        covariance += 1e-12 * covariance.diagonal().mean() * torch.eye(len(covariance)).to(covariance)
        return cls(norm, torch.linalg.cholesky(covariance).to(subspace.basis))

    def spread(self, z: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return z @ self.metric.T

    def gather(self, rows: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return rows @ self.metric

    def coordinates_of(self, candidates: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        """z with rows_at(z) = candidates, for candidates of the norm."""
        return torch.linalg.solve_triangular(self.metric, candidates.T, upper=False).T
