"""Coordinates in which candidates are searched: x̂ = norm · S z / ||S z||, one row z a candidate.

A quasi-Newton method starts from the metric of its coordinates: what is large in S z for a small z moves first.
Photographs have little energy at high frequencies, about 1 / f in amplitude, and little in colour differences. With
S = (colour axes) ⊗ (two-dimensional cosine transform) scaled that way, a random z is a random smooth picture, the
search finds coarse structure first and details after, and bad minima that noise-like candidates fall into are left
aside. S is invertible: every image can still be reached, and the loss is what it was. Without an image shape S = I.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.frequencies import cosine_transform

CHROMA = 0.4  # amplitude of colour differences over that of brightness


@dataclass(frozen=True, eq=False)
class Coordinates:
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

    def rows_at(self, z: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """The candidates at coordinates z."""
        spread = self._spread(z)
        if self.norm is None:
            return spread
        return spread * (self.norm / spread.norm(dim=1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny))

    def gradient_at(self, z: Float[Tensor, "m d"], gradient: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """A gradient in the candidates, carried to z."""
        if self.norm is not None:
            spread = self._spread(z)
            lengths = spread.norm(dim=1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
            units = spread / lengths
            along = (gradient * units).sum(dim=1, keepdim=True)
            gradient = (gradient - along * units) * (self.norm / lengths)
        return self._gather(gradient)

    def coordinates_of(self, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """z with rows_at(z) = candidates, for candidates of the norm."""
        if self.amplitude is None:
            return candidates
        return self._gather(candidates) / self.amplitude.reshape(-1).square()

    def _spread(self, z: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """S z."""
        if self.amplitude is None:
            return z
        scaled = z.reshape(len(z), *self.amplitude.shape) * self.amplitude
        return torch.einsum("nakl,ac,ki,lj->ncij", scaled, self.colours, self.rows, self.columns).reshape(z.shape)

    def _gather(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """Sᵀ x."""
        if self.amplitude is None:
            return rows
        images = rows.reshape(len(rows), *self.amplitude.shape)
        found = torch.einsum("ncij,ac,ki,lj->nakl", images, self.colours, self.rows, self.columns)
        return (found * self.amplitude).reshape(rows.shape)
