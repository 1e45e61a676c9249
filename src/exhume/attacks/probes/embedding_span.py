"""What a head on a frozen extractor shows of its training embeddings: a part of their span, and no embedding by itself.

Each step of gradient descent on the head W of f(x) = W φ(x) adds Σ_i e_i φ(x_i)ᵀ to it, whatever the loss, and a closed
form (min-norm, ridge) is of the same kind. The extractor φ does not move, so

    Δ = W(T) − W(0) = Aᵀ Φ        (k × h, with Φ = φ(x_1), ..., φ(x_n) as rows and A n × k)

exactly, up to rounding. The row space of Δ lies in span{φ(x_i)}: of these at most n dimensions it shows rank(Δ), at
most min(k, n). Where n is at most the number of independent outputs it is all of the span.

No single embedding follows from it. For every invertible n × n matrix Q,

    Aᵀ Φ = (Q⁻ᵀ A)ᵀ (Q Φ),

so other embeddings QΦ in the same span explain the weights as well: the embeddings enter linearly, which is the
counter-example of the reconstruction theorem. What brings single inputs back is the curvature of φ: attack through the
extractor, or hold records that you have against the weights (`ranking.py`).
"""

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError

NOT_DETERMINED = "individual embeddings are not determined: others in the same span explain the weights as well"
SMALL = 1e-3  # of the largest singular value: rounding over many steps stays below, and so may genuine values
GAP = 30.0  # a drop by this factor among small values is the edge between what is there and rounding


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingSpan:
    """An orthonormal basis of the row space of Δ."""

    basis: Float[Tensor, "r p"]
    singular_values: Float[Tensor, " q"]
    """All of them, falling; those beyond the rank are rounding."""

    @property
    def rank(self) -> int:
        return len(self.basis)

    @property
    def gap(self) -> float:
        """The last singular value that counts over the first that does not; infinite where all count."""
        if self.rank == len(self.singular_values):
            return math.inf
        return float(self.singular_values[self.rank - 1] / self.singular_values[self.rank])

    def share(self, embeddings: Float[Tensor, "m p"]) -> Float[Tensor, " m"]:
        """The share of ‖φ(x)‖² that lies in the span: 1 for training embeddings where the span is complete."""
        exact = embeddings.double()
        inside = (exact @ self.basis.T).square().sum(dim=1)
        return inside / exact.square().sum(dim=1).clamp_min(torch.finfo(torch.float64).tiny)


def embedding_span(change: Float[Tensor, "k p"]) -> EmbeddingSpan:
    """The row space of the change of a head, its rank read off the gap in the spectrum.

    >>> embedding_span(torch.tensor([[1.0, 0.0, 1.0], [2.0, 0.0, 2.0]])).rank
    1
    """
    exact = change.double()
    if not torch.isfinite(exact).all():
        raise ExhumeError("expected a finite change of the head, found NaN or infinite numbers")
    if not torch.any(exact):
        raise ExhumeError("expected a head that was trained, found no change of its weights")
    # k is small: the k x k Gram matrix would halve the digits, a reduced QR keeps them
    orthonormal, triangle = torch.linalg.qr(exact.T)
    left, values, _ = torch.linalg.svd(triangle)
    rank = _rank(values.tolist())
    return EmbeddingSpan((orthonormal @ left[:, :rank]).T.contiguous(), values)


def _rank(values: list[float]) -> int:
    """Everything, unless there is a clear gap below which values are small.

    >>> _rank([1.0, 0.5, 1e-6, 1e-7]), _rank([1.0, 0.02, 0.01]), _rank([1.0, 1e-2, 1e-9])
    (2, 3, 2)
    """
    smallest = values[0] * torch.finfo(torch.float64).eps
    ratios = [
        before / max(after, smallest) if after <= SMALL * values[0] else 0.0
        for before, after in itertools.pairwise(values)
    ]
    widest = max(ratios, default=0.0)
    return len(values) if widest < GAP else ratios.index(widest) + 1
