"""The signs of candidates, for activations that are linear plus even (ReLU, GELU, softplus).

Once every x_i is known up to sign, φ(v·x) and φ(−v·x) together span the even part and the linear one: the regression of
θ on both has one solution for m ≤ d, and the larger of the two coefficients tells the sign. For m > d it has many, and
single flips are tried for as long as they lower the loss.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.span import SpanLoss

# by how much the other sign's coefficient must be larger before a candidate is turned
_MARGIN = 1.5


def repair_signs(loss: SpanLoss, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """The candidates with the signs that the weights speak for. Two passes."""
    products = _products_of_both_signs(loss, candidates)
    m, d = candidates.shape
    flipped = products.larger_coefficient() if m <= d else torch.zeros(m, dtype=torch.bool, device=candidates.device)
    flipped = products.flip_while_better(flipped)
    return torch.where(flipped[:, None], -candidates, candidates)


@dataclass(frozen=True, eq=False)
class _Products:
    """Gram matrix and moments of the features of the candidates (first m) and of their negatives (last m)."""

    gram: Float[Tensor, "two_m two_m"]
    moments: Float[Tensor, "two_m k"]

    def larger_coefficient(self) -> Bool[Tensor, " m"]:
        m = len(self.gram) // 2
        values, vectors = torch.linalg.eigh(self.gram)
        kept = values > 1e-9 * values[-1]
        coefficients = (vectors[:, kept] / values[kept]) @ (vectors[:, kept].T @ self.moments)
        return coefficients[m:].norm(dim=1) > _MARGIN * coefficients[:m].norm(dim=1)

    def flip_while_better(self, flipped: Bool[Tensor, " m"]) -> Bool[Tensor, " m"]:
        """Single flips for as long as they explain more. No pass: m small solves a round."""
        best = self._explained(flipped)
        for _ in range(2 * len(flipped)):
            trials = []
            for index in range(len(flipped)):
                trial = flipped.clone()
                trial[index] = ~trial[index]
                trials.append(self._explained(trial))
            index = max(range(len(trials)), key=trials.__getitem__)
            if not trials[index] > best * (1 + 1e-9):
                break
            best = trials[index]
            flipped = flipped.clone()
            flipped[index] = ~flipped[index]
        return flipped

    def _explained(self, flipped: Bool[Tensor, " m"]) -> float:
        """||P θ||² for one choice of signs."""
        m = len(flipped)
        chosen = torch.arange(m, device=flipped.device) + m * flipped
        gram = self.gram[chosen][:, chosen]
        ridge = 1e-10 * gram.diagonal().mean() * torch.eye(m, dtype=gram.dtype, device=gram.device)
        solved = torch.linalg.solve(gram + ridge, self.moments[chosen])
        return float((solved * self.moments[chosen]).sum())


def _products_of_both_signs(loss: SpanLoss, candidates: Float[Tensor, "m d"]) -> _Products:
    both = torch.cat([candidates, -candidates])
    gram = torch.zeros(len(both), len(both), dtype=torch.float64, device=candidates.device)
    moments = torch.zeros(len(both), len(loss.weights), dtype=torch.float64, device=candidates.device)
    for block, features in loss.features.feature_blocks(both):
        exact = features.double()
        gram += exact @ exact.T
        moments += exact @ loss.weights[:, block].double().T
    loss.count_passes(2)
    return _Products(gram, moments)
