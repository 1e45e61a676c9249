"""The free affine part: W = [V, 1, |v|, (b)], a few known columns added to the span.

While candidates are still missing, the linear and constant parts of the missing samples' features dominate the residual
and push the others into bad minima. With W in the span they cost nothing: a fit then only has to explain what is left,
the part of φ beyond its linear one. For an activation that is linear plus even the sign of a candidate does not matter
either until the affine part is taken away again.

The span of W is eliminated exactly, by the inverse of WᵀW: worth p d² operations once, so for moderate d only.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import blocks


class AffinePart:
    """Products with W, block by block, (WᵀW)⁻¹ and Wᵀθᵀ. V is used where it lies; only the other columns are kept.

    `features` and `weights` are those of this rank's own rows.
    """

    def __init__(self, features: RidgeFeatures, weights: Float[Tensor, "k p"], ranks: Ranks = ALONE) -> None:
        self.features, self.dtype, self.device, self.ranks = features, weights.dtype, weights.device, ranks
        self.others = self._other_columns()
        count = self.columns
        square = torch.zeros(count, count, dtype=torch.float64, device=self.device)
        for block in blocks(features.rows):
            rows, others = self._rows(block), self.others[block]
            columns = torch.cat([rows, others], dim=1)
            square += columns.T @ columns
        square = ranks.sum(square)
        self.moments = self.products(weights)
        diagonal = square.diagonal()
        scale = torch.where(diagonal > 0, diagonal.rsqrt(), 0.0)  # a column of V may be zero
        # the columns may depend on each other (few rows, dead rows): a pseudo-inverse at the precision of products
        balanced = torch.linalg.pinv(
            square * scale[:, None] * scale, rtol=count * torch.finfo(self.dtype).eps, hermitian=True
        )
        self.inverse = balanced * scale[:, None] * scale

    @property
    def columns(self) -> int:
        return self.features.d + self.others.shape[1]

    def no_overlap(self, m: int) -> Float[Tensor, "m c"]:
        """What sums of `times` begin with."""
        return torch.zeros(m, self.columns, dtype=torch.float64, device=self.device)

    def times(self, values: Float[Tensor, "m rows"], block: slice) -> Float[Tensor, "m c"]:
        """values W_b for one block of this rank's rows."""
        return torch.cat([values @ self._rows(block), values @ self.others[block]], dim=1)

    def products(self, values: Float[Tensor, "k p"]) -> Float[Tensor, "c k"]:
        """Wᵀ valuesᵀ."""
        total = self.no_overlap(len(values))
        for block in blocks(self.features.rows):
            total += self.times(values[:, block], block)
        return self.ranks.sum(total).T

    def combine(self, slopes: Float[Tensor, "c k"]) -> Float[Tensor, "k p"]:
        """(W slopes)ᵀ."""
        d, slopes = self.features.d, slopes.to(self.dtype)
        combined = slopes[d:].T @ self.others.T
        for block in blocks(self.features.rows):
            combined[:, block] += slopes[:d].T @ self._rows(block).T
        return combined

    def _rows(self, block: slice) -> Float[Tensor, "rows d"]:
        return self.features.rows.block(block.start, block.stop).to(device=self.device, dtype=self.dtype)

    def _other_columns(self) -> Float[Tensor, "p e"]:
        """1, |v| and the bias where there is one."""
        none = torch.zeros(0, dtype=self.dtype, device=self.device)  # a rank may have no row of a small part
        norms = torch.cat([none, *(self._rows(block).norm(dim=1) for block in blocks(self.features.rows))])
        columns = [torch.ones_like(norms), norms]
        if self.features.bias is not None:
            columns.append(self.features.bias.to(norms))
        return torch.stack(columns, dim=1)
