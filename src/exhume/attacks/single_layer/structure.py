"""What the weights are as a function of the rows: how much of a rest is one, and how many equations rows really are.

The weights at the rows of V are values of one function v ↦ Σ_i A_i φ(v·x_i). Features of random points show which
functions there are: their likeness Φᵀ Φ from row to row has a level λ_j for each direction, here with mean 1.

*Is what candidates leave of the weights noise?* Noise cannot be predicted from other weights. What is left at each row
is predicted from all other rows, by a regression on the features of random points with a ridge (the best of several):
the share 1 − ||r − r̂||² / ||r||² that this explains, each row left out of its own prediction. It is 0, but for chance,
for rounding, for noise, for features that are slightly off; missing samples and wrong signs leave a function of the
rows.

*How many equations are there?* A direction whose level is not clearly above the noise tells nothing: rows that repeat
each other, or a smooth φ in few dimensions, leave fewer than p.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.span import Fit, SpanLoss

ROWS = 600  # are enough to tell, and their matrix is solved within a second
POINTS = 2  # for each row
RIDGES = tuple(10.0**power for power in range(-6, 1))
SHOWS = 10.0  # times the variance of the noise: what can be seen in the weights
NEARLY_ALL = 0.9  # of the rows looked at are equations of their own: then so are the others
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False, repr=False)
class Structure:
    """`levels` and `vectors` of the likeness of the first rows, out of `of` rows."""

    levels: Float[Tensor, " p"]
    vectors: Float[Tensor, "p p"]
    of: int

    @classmethod
    def at(cls, loss: SpanLoss, fit: Fit) -> "Structure":
        """With random points as long as the candidates."""
        p, d = min(ROWS, loss.features.p), loss.features.d
        norm = fit.candidates.double().norm(dim=1).median()
        stream = torch.Generator().manual_seed(0)
        points = torch.randn(POINTS * p, d, generator=stream, dtype=torch.float64).to(fit.candidates.device)
        values = loss.features.part(0, p)(norm * points / points.norm(dim=1, keepdim=True))
        likeness = values.T @ values
        levels, vectors = torch.linalg.eigh(likeness / likeness.diagonal().mean().clamp_min(TINY))
        return cls(levels.clamp_min(0), vectors, loss.features.p)

    def predictable_share(self, residual: Float[Tensor, "k p"]) -> float:
        """The share of a residual that other rows predict."""
        left = residual[:, : len(self.levels)].double()
        total = left.square().sum().clamp_min(TINY)
        shares = []
        for ridge in RIDGES:
            inverse = (self.vectors / (self.levels + ridge)) @ self.vectors.T
            missed = (left @ inverse) / inverse.diagonal()
            shares.append(1 - float(missed.square().sum() / total))
        return max(0.0, *shares)

    def equations(self, noise: float) -> float:
        """How many of the rows tell something of their own above noise of this variance: no more than there are."""
        count = int((self.levels > SHOWS * noise).sum())
        return count * self.of / len(self.levels) if count >= NEARLY_ALL * len(self.levels) else count
