"""What is known of images before any weight is seen: how much energy they have at each frequency and in each colour.

By default that of the law in `frequencies.py`; it may also be measured on public images, as one variance for each ring
of frequencies and each colour axis. A candidate at resolution r is x = U z with the r first coordinates in the order of
the law, and z_j is expected to have the variance of the spectrum.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.errors import ExhumeError
from exhume.files import SCHEMA, check_schema, read_json, write_json
from exhume.frequencies import (
    ImageShape,
    frequencies,
    natural_variance,
    resolution_order,
    side_length,
    to_frequencies,
    to_rows,
)

KIND = "spectrum"
RING = 1.25  # the ratio of frequencies from one ring to the next
LEAST_OF_SPAN = 1e-6  # of the mean variance: no direction of a subspace is impossible
LEAST_SHARE = 1e-4  # of the law, below which a measured variance is not believed: every image has to stay possible


@dataclass(frozen=True)
class FrequencySpectrum:
    """`rings` are the variances of each colour axis, from the lowest ring to the highest; None: those of the law."""

    rings: list[list[float]] | None = None
    source: str = "1/f"

    @classmethod
    def measured(cls, rows: Float[Tensor, "n d"], shape: ImageShape, source: str) -> "FrequencySpectrum":
        """The mean square of public images that were prepared as training data are."""
        seen = to_frequencies(rows.double(), shape).square().mean(dim=0)
        if not torch.isfinite(seen).all() or not float(seen.mean()) > 0:
            raise ExhumeError(f"expected images that are not blank in {source}, found others; choose others")
        ring = _rings(shape)
        rings = [[float(axis[ring == number].mean()) for number in torch.unique(ring)] for axis in seen]
        return cls(rings, source)

    def variance(self, shape: ImageShape) -> Float[Tensor, "c height width"]:
        """The variance of each coordinate of rows of norm √d: their mean is 1."""
        law = natural_variance(shape)
        if self.rings is None:
            return law
        numbers, place = torch.unique(_rings(shape), return_inverse=True)
        if len(self.rings) != shape[0] or len(self.rings[0]) < len(numbers):
            raise ExhumeError(
                f"expected a spectrum of {shape[0]} colour axes and {len(numbers)} rings for images "
                f"{'x'.join(map(str, shape))}, found {len(self.rings)} and {len(self.rings[0])}; "
                "measure it on images of that size"
            )
        found = torch.tensor(self.rings, dtype=torch.float64)[:, place]
        believed = torch.maximum(found / found.mean(), LEAST_SHARE * law)
        return believed / believed.mean()

    def basis(self, shape: ImageShape) -> "ImageBasis":
        """All coordinates, coarsest first."""
        return ImageBasis(shape, resolution_order(shape), self.variance(shape).flatten()[resolution_order(shape)])


@dataclass(frozen=True, eq=False, repr=False)
class ImageBasis:
    """x = U z, a `Parametrisation` whose U is a transform and is never kept as a matrix."""

    shape: ImageShape
    chosen: Int[Tensor, " r"]
    variance: Float[Tensor, " r"]

    @property
    def d(self) -> int:
        return math.prod(self.shape)

    @property
    def r(self) -> int:
        return len(self.chosen)

    def cut(self, r: int) -> "ImageBasis":
        """The same at resolution r."""
        return ImageBasis(self.shape, self.chosen[:r], self.variance[:r])

    def in_words(self, r: int) -> dict[str, int]:
        """How fine r coordinates are, for the summary."""
        return {"frequencies": r, "side": side_length(r, self.shape[0])}

    def lift(self, coordinates: Float[Tensor, "m r"]) -> Float[Tensor, "m d"]:
        whole = torch.zeros(len(coordinates), self.d, dtype=coordinates.dtype, device=coordinates.device)
        whole[:, self.chosen.to(coordinates.device)] = coordinates
        return to_rows(whole.reshape(-1, *self.shape))

    def lower(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m r"]:
        return to_frequencies(rows, self.shape).flatten(start_dim=1)[:, self.chosen.to(rows.device)]


def _rings(shape: ImageShape) -> Int[Tensor, "height width"]:
    """The ring that each frequency belongs to; the mean of the image is the first."""
    frequency = frequencies(shape)
    ring = 1 + torch.floor(torch.log(frequency.clamp_min(1)) / math.log(RING) + 1e-9)
    return torch.where(frequency < 1, 0, ring.long())


def save_spectrum(spectrum: FrequencySpectrum, path: Path) -> None:
    write_json(path, {"kind": KIND, "schema": SCHEMA, **asdict(spectrum)})


def load_spectrum(path: Path) -> FrequencySpectrum:
    content = read_json(path)
    if content.get("kind") != KIND:
        raise ExhumeError(f"expected {path} to hold a spectrum, found {str(content.get('kind'))[:80]!r}")
    check_schema(content, path)
    rings = content.get("rings")
    if not _are_rings(rings):
        raise ExhumeError(f"expected a positive variance for each colour axis and ring in {path}, found others")
    return FrequencySpectrum(
        [[float(value) for value in axis] for axis in rings], str(content.get("source", path.name))
    )


def _are_rings(rings: Any) -> TypeGuard[list[list[float]]]:
    if not isinstance(rings, list) or not rings or not all(isinstance(axis, list) and axis for axis in rings):
        return False
    if len({len(axis) for axis in rings}) != 1:
        return False
    values = [value for axis in rings for value in axis]
    return all(type(value) in (int, float) and math.isfinite(value) and value > 0 for value in values)


@dataclass(frozen=True, eq=False, repr=False)
class SpanBasis:
    """Like `ImageBasis`, but for coordinates of a subspace of c dimensions that the data are known to lie in.

    With x = U z and x ~ N(0, C), C diagonal in the frequencies, z has the covariance UᵀCU = Q diag(variance) Qᵀ. So in
    the coordinates y = Qᵀz, those of largest variance first, it is diagonal again. `directions` is Q.
    """

    directions: Float[Tensor, "c r"]
    variance: Float[Tensor, " r"]

    @classmethod
    def inside(cls, subspace: Subspace, spectrum: FrequencySpectrum, shape: ImageShape) -> "SpanBasis":
        """All directions; their mean variance is 1, so that rows of norm √c are expected."""
        columns = to_frequencies(subspace.basis.double().T, shape).flatten(start_dim=1)
        covariance = (columns * spectrum.variance(shape).double().flatten()) @ columns.T
        values, vectors = torch.linalg.eigh(covariance)
        variance = values.flip(0) / values.mean()
        return cls(vectors.flip(1), variance.clamp_min(LEAST_OF_SPAN))

    @property
    def d(self) -> int:
        return self.directions.shape[0]

    @property
    def r(self) -> int:
        return len(self.variance)

    def cut(self, r: int) -> "SpanBasis":
        return SpanBasis(self.directions[:, :r], self.variance[:r])

    def in_words(self, r: int) -> dict[str, int]:
        return {"directions": r, "of": self.d}

    def lift(self, coordinates: Float[Tensor, "m r"]) -> Float[Tensor, "m c"]:
        return coordinates @ self.directions.to(coordinates).T

    def lower(self, rows: Float[Tensor, "m c"]) -> Float[Tensor, "m r"]:
        return rows @ self.directions.to(rows)
