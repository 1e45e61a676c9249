"""Signs of more candidates than dimensions, from the linear part of the weights alone.

An activation that is linear plus even, φ(z) = e(z) + c z / 2, gives weights

    θ = Σ_j a_j e(v·x̂_j) + v·w,        w = (c / 2) Σ_j a_j s_j x̂_j   for the true signs s_j = ±1.

The even part tells every a_j, the linear one tells w: d equations an output for m signs. For m ≤ d they are solved one
by one. For m > d there are still finitely many choices of signs and a continuum of sums, so that in general only one
choice gives w: the least of the quadratic form

    f(s) = Σ_o ||Σ_j (a_jo s_j − b_jo) o_j||²  =  sᵀ Q s − 2 qᵀ s + const,

with o_j the odd parts of the features and b any coefficients of w in them. It is found by steepest single flips from
many random starts: each costs m² operations, and a share of them ends at the right choice (m = 40, d = 10: one in
ninety).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.both_signs import BothSigns

STARTS = 4096
OPERATIONS = 2e9  # m^3 a start: fewer of them for many candidates
FINALISTS = 8


@dataclass(frozen=True, eq=False, repr=False)
class SignForm:
    """f(s) = sᵀ Q s − 2 qᵀ s for signs s in {−1, 1}^m."""

    quadratic: Float[Tensor, "m m"]
    linear: Float[Tensor, " m"]

    @classmethod
    def of(cls, products: BothSigns) -> "SignForm":
        m, halves = products.m, products.halves()
        gram, moments = halves.gram, halves.moments
        solved = torch.linalg.pinv(gram, rtol=1e-9, hermitian=True) @ moments
        even, odd, overlap = solved[:m], solved[m:], gram[m:, m:]
        return cls(overlap * (even @ even.T), (even * (overlap @ odd)).sum(dim=1))

    def values(self, signs: Float[Tensor, "starts m"]) -> Float[Tensor, " starts"]:
        return ((signs @ self.quadratic) * signs).sum(dim=1) - 2 * signs @ self.linear

    def descend(self, signs: Float[Tensor, "starts m"]) -> Float[Tensor, "starts m"]:
        """Each start flips the sign that gains most, until none gains."""
        signs = signs.clone()
        pulls, diagonal = signs @ self.quadratic, self.quadratic.diagonal()
        least = -1e-12 * float(self.quadratic.abs().sum())
        for _ in range(10 * signs.shape[1]):
            change, place = (-4 * signs * (pulls - diagonal * signs - self.linear)).min(dim=1)
            moving = (change < least).nonzero()[:, 0]
            if not len(moving):
                break
            flipped = place[moving]
            old = signs[moving, flipped]
            pulls[moving] -= 2 * old[:, None] * self.quadratic[flipped]
            signs[moving, flipped] = -old
        return signs


def likely_signs(form: SignForm, starts: int = STARTS, finalists: int = FINALISTS) -> Float[Tensor, "count m"]:
    """The distinct choices of signs of the lowest values, best first."""
    stream = torch.Generator().manual_seed(0)
    m = len(form.linear)
    starts = max(1, min(starts, round(OPERATIONS / m**3), 2 ** min(m, 30)))
    drawn = torch.randint(0, 2, (starts, m), generator=stream).to(form.quadratic) * 2 - 1
    found = torch.unique(form.descend(drawn), dim=0)
    return found[form.values(found).argsort()[:finalists]]
