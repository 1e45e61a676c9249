"""Candidates inside the span of the first layer's change: x = c + B s∘z, r − 1 numbers instead of d.

The change of a dense layer with bias that reads the inputs is L = C X̃ with x̃ = (x, 1): its row space, U, holds every x̃.
So x lies in an affine space: c is its point nearest to zero, B (d × (r − 1)) its directions. Without a bias it is the
row space itself, with c = 0. s is how much L moves along each direction: directions in which the data hardly vary are
searched last. This holds for any network behind the layer and for any activation. The rank is the number of samples,
where they are independent.

Rows of the same kind (`ModuleFeatures.kin`) show such coordinates too, of the whole space: c is their mean, B their
principal axes, s how much they vary along each. A start z ~ N(0, I) is then a row such as theirs.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.spectrum import Spectrum, spectrum
from exhume.layer_states import LayerStates
from exhume.observation import Observation
from exhume.observing.dense_layers import with_layers

LEAST = 1e-3  # of the largest s


@dataclass(frozen=True, eq=False, repr=False)
class AffineSpan:
    """The coordinates z of a quasi-Newton search; `source` is the layer whose change shows the span.

    `rank` is the number of samples that the layer shows, None where rows of the same kind show the axes.
    """

    centre: Float[Tensor, " d"]
    metric: Float[Tensor, "d f"]
    inverse: Float[Tensor, "f d"]
    source: str
    rank: int | None

    @classmethod
    def of(cls, observation: Observation, like: Tensor) -> "AffineSpan | None":
        """None where no layer shows a span that is smaller than the space, and no rows of the same kind are there."""
        kin = observation.network.kin
        if kin is not None:
            return cls._of_kin(kin.double(), like)
        for states in with_layers(observation).layers:
            if states.reads == "inputs" and states.source == "training" and states.d == observation.d:
                shown = spectrum(states)
                return cls._shown(states, shown, like) if shown.exact and shown.rank <= observation.d else None
        return None

    @classmethod
    def _of_kin(cls, rows: Float[Tensor, "N d"], like: Tensor) -> "AffineSpan":
        centre = rows.mean(dim=0)
        spread, axes = torch.linalg.eigh((rows - centre).T @ (rows - centre) / len(rows))
        sizes = spread.clamp_min(LEAST**2 * float(spread[-1])).sqrt()
        note = f"the mean and the principal axes of {len(rows):,} rows of the same kind"
        return cls(centre.to(like), (axes * sizes).to(like), (axes / sizes).T.to(like), note, None)

    @classmethod
    def _shown(cls, states: LayerStates, shown: Spectrum, like: Tensor) -> "AffineSpan":
        directions, sizes = shown.directions.double(), shown.values[: shown.rank].double()
        centre = torch.zeros(states.d, dtype=torch.float64)
        if states.bias:
            last = directions[-1]
            through = directions @ (last / last.square().sum())  # the point of the span whose last coordinate is 1
            centre = through[:-1]
            inside = torch.linalg.svd(last[None], full_matrices=True)[2][1:].T  # those that leave it alone
            spread, axes = torch.linalg.eigh(inside.T @ (sizes.square()[:, None] * inside))
            directions, sizes = (directions @ inside @ axes)[:-1], spread.clamp_min(0).sqrt()
        sizes = (sizes / sizes.max()).clamp_min(LEAST)
        # a start z ~ N(0, I) is as far from the centre as the centre from zero, or as inputs of variance 1 are
        reach = float(centre.norm()) if states.bias and bool(centre.any()) else states.d**0.5
        sizes = sizes * (reach / float(sizes.norm()))
        note = f"{states.describe()}; {shown.describe()}"
        inverse = (directions / sizes).T
        return cls(centre.to(like), (directions * sizes).to(like), inverse.to(like), note, shown.rank)

    @property
    def numbers(self) -> int:
        return self.metric.shape[1]

    def rows_at(self, z: Float[Tensor, "m f"]) -> Float[Tensor, "m d"]:
        return self.centre + z @ self.metric.T

    def gradient_at(self, z: Float[Tensor, "m f"], gradient: Float[Tensor, "m d"]) -> Float[Tensor, "m f"]:
        return gradient @ self.metric

    def coordinates_of(self, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m f"]:
        return (candidates - self.centre) @ self.inverse.T
