"""The features of candidates and of their negatives together, for activations that are linear plus even.

φ(z) = e(z) + c z / 2 (ReLU, GELU, softplus): φ(v·x) and φ(−v·x) span the even part of a candidate's feature and the
linear one v·x. In that larger span no sign can be wrong, and what a *ghost* pair +u, −u was good for, a linear term
that makes up for wrong signs of others, is there already: only candidates whose even part the weights need are samples.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.single_layer.pruning import needed
from exhume.attacks.single_layer.span import SpanLoss


@dataclass(frozen=True, eq=False, repr=False)
class BothSigns:
    """Gram matrix and moments of the features of the candidates (first m) and of their negatives (last m)."""

    gram: Float[Tensor, "two_m two_m"]
    moments: Float[Tensor, "two_m k"]
    energy: float

    @classmethod
    def of(cls, loss: SpanLoss, candidates: Float[Tensor, "m d"]) -> "BothSigns":
        """Two passes, with the features in float64: what is nearly parallel is told apart here."""
        both = torch.cat([candidates, -candidates])
        gram = torch.zeros(len(both), len(both), dtype=torch.float64, device=candidates.device)
        moments = torch.zeros(len(both), len(loss.weights), dtype=torch.float64, device=candidates.device)
        for block, features in loss.features.feature_blocks(both):
            exact = features.double()
            gram += exact @ exact.T
            moments += exact @ loss.weights[:, block].double().T
        loss.count_passes(2)
        return cls(loss.ranks.sum(gram), loss.ranks.sum(moments), loss.energy)

    @property
    def m(self) -> int:
        return len(self.gram) // 2

    def part(self, kept: Bool[Tensor, " m"]) -> "BothSigns":
        """Of some of the candidates only."""
        both = torch.cat([kept, kept])
        return BothSigns(self.gram[both][:, both], self.moments[both], self.energy)

    def halves(self) -> "BothSigns":
        """The same of the even parts (first m) and the odd parts (last m) of the features."""
        eye = torch.eye(self.m, dtype=self.gram.dtype, device=self.gram.device)
        change = torch.cat([torch.cat([eye, eye], dim=1), torch.cat([eye, -eye], dim=1)]) / 2
        return BothSigns(change @ self.gram @ change.T, change @ self.moments, self.energy)

    def needed(self, negligible: float) -> Bool[Tensor, " m"]:
        """Which candidates' even parts the weights need, the linear part being free."""
        halves, m = self.halves(), self.m
        gram, moments = halves.gram, halves.moments
        through = gram[:m, m:] @ torch.linalg.pinv(gram[m:, m:], rtol=1e-9, hermitian=True)
        even, wanted = gram[:m, :m] - through @ gram[m:, :m], moments[:m] - through @ moments[m:]
        return needed(even, wanted, self.energy, negligible)

    def negative_is_larger(self, margin: float) -> Bool[Tensor, " m"]:
        """Whether −x̂ has a coefficient so much larger than x̂ in the regression on both."""
        values, vectors = torch.linalg.eigh(self.gram)
        kept = values > 1e-9 * values[-1]
        coefficients = (vectors[:, kept] / values[kept]) @ (vectors[:, kept].T @ self.moments)
        return coefficients[self.m :].norm(dim=1) > margin * coefficients[: self.m].norm(dim=1)

    def explained(self, flipped: Bool[Tensor, " m"]) -> float:
        """||P θ||² for one choice of signs."""
        chosen = torch.arange(self.m, device=flipped.device) + self.m * flipped
        gram = self.gram[chosen][:, chosen]
        shift = 1e-10 * gram.diagonal().mean() + torch.finfo(gram.dtype).tiny  # features may all be silent
        ridge = shift * torch.eye(self.m, dtype=gram.dtype, device=gram.device)
        solved = torch.linalg.solve(gram + ridge, self.moments[chosen])
        return float((solved * self.moments[chosen]).sum())
