"""Other explanations that are not near: parts of samples exchanged, and signs turned.

*Parts.* Where rows of V see parts (`parts.py`), only the coefficient ties the parts of a sample together:

    θ_k = Σ_i A_i φ(v_k · x_i^(g)),   g the group of row k.

Two candidates may exchange a part where their coefficients are alike; where φ is odd, also where they are opposite, the
parts turned. Where φ is homogeneous, they may always do so if their coefficients have the same sign, because the scale
of a part makes up for the difference.

*Signs.* Where φ(z) − φ(−z) = c z, candidates S may be turned if Σ_S A_i x_i = 0; where φ(z) + φ(−z) is a constant, if
Σ_S A_i = 0. The same holds of each part: there φ may even be odd or even. One of them, or several at once: every set is
tried where candidates are few. But the sum need not be zero. Two opposite samples look like one, and leave the same
line or constant as a turned set; no one knows of which size. So the number of sets that chance puts within √h of any
given sum must be small, too. 2^m sets have sums that scatter as N(½ Σ_i l_i, ¼ Σ_i l_i l_iᵀ), l_i what turning
candidate i leaves in the weights. Along the direction j of variance λ_j / 4 a share of at most 2 √(2 h / π λ_j) of them
is as close.

Signs change the weights by a vector, of which coefficients and candidates may make up for a part by moving a little
(`linearised.py`). Where what is left of it, c, would not show, the weights do not tell: candidates leave r now, and
||r − c||² would be no more than ||r||² and the noise. It may be less: then the other explanation is the better one. An
exchange may take longer moves, because norms are known, so what is left is looked at from where it leads.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation.certificate import LUCK
from exhume.attacks.foundation.unknowns import TINY, factors, unknown_directions
from exhume.attacks.single_layer import parts
from exhume.attacks.single_layer.linearised import Explanation, basis
from exhume.solving import least_squares

OPPOSITE = -0.9  # a cosine: where the opposite of a candidate is one too, turning it would leave nothing in its place
ALL_SETS = 14  # candidates up to which every set of them is turned: 16,384 sets


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """Groups of rows that see a part of their own, and what all rows see of the candidates."""

    at: Explanation
    groups: list[Bool[Tensor, " p"]]
    seen: Float[Tensor, "m p"]
    inverse: Float[Tensor, "p d"]

    @classmethod
    def of(cls, at: Explanation) -> "Parts":
        groups = parts.parts(at.rows)
        inverse = parts.inverse(at.rows) if groups else at.rows.new_zeros(at.rows.shape)
        return cls(at, groups, at.candidates @ at.rows.T, inverse)

    def replaced(self, which: list[int], seen: Float[Tensor, "c p"], group: Bool[Tensor, " p"]) -> Float[Tensor, "c d"]:
        """Candidates whose part is that of which a group of rows sees this."""
        wanted = torch.where(group, seen - self.seen[which], 0.0)
        return self.at.candidates[which] + wanted @ self.inverse


def exchangeable(
    at: Explanation, known: Parts, hidden: float, free_norms: bool, asked: Bool[Tensor, " m"]
) -> Bool[Tensor, " m"]:
    """Candidates of which a part may be another one's: the exchange would not show in the weights.

    Pairs are left out of which neither is asked about.
    """
    m, signs = len(at.candidates), (1, -1) if at.features.activation.parity == "odd" else (1,)
    unsure = torch.zeros(m, dtype=torch.bool, device=at.rows.device)
    left = float(at.not_made_up(at.residual[None]).square().sum())
    for group in known.groups[:-1]:  # to exchange the last is to exchange all others
        for (one, other), sign in itertools.product(itertools.combinations(range(m), 2), signs):
            factor = sign * _factor(at, one, other)
            if factor == 0 or not bool((asked & ~unsure)[[one, other]].any()):
                continue
            theirs = torch.stack([factor * known.seen[other], known.seen[one] / factor])
            exchanged = known.replaced([one, other], theirs, group)
            # a known norm may be one but nearly, so both with what norms the exchange gives and with those known
            scale = at.candidates[[one, other]].norm(dim=1) / exchanged.norm(dim=1).clamp_min(TINY)
            norms = (exchanged,) if free_norms else (exchanged, scale[:, None] * exchanged)
            if any(_left_with(at, [one, other], some, free_norms) <= left + hidden for some in norms):
                unsure[[one, other]] = True
    return unsure


def _left_with(at: Explanation, which: list[int], changed: Float[Tensor, "c d"], free_norms: bool) -> float:
    """||·||² of what is left of the weights with some candidates changed, and moved from where they are then.

    They may have to move so far, to norms that are known, that what moves do has to be taken there and not here.
    """
    candidates = at.candidates.clone()
    candidates[which] = changed
    values = at.features(candidates)
    spanned = basis(values)
    amplitudes = least_squares(values.T, at.weights.T)[which]
    ways = unknown_directions(changed, free_norms)
    columns = torch.einsum("cp,pd,cdu->pcu", at.slopes_at(changed), at.rows, ways).flatten(1)
    columns = columns - spanned @ (spanned.T @ columns)
    count = ways.shape[2]
    moves = torch.cat([columns * own.repeat_interleave(count) for own in amplitudes.T])
    left = torch.cat([row - spanned @ (spanned.T @ row) for row in at.weights])
    _, seen = factors(moves)
    for _ in range(2):
        left = left - seen @ (seen.T @ left)
    return float(left.square().sum())


def _factor(at: Explanation, one: int, other: int) -> float:
    """By what the other's part is multiplied where it takes the place of one's; 0 where no factor is right."""
    if not at.features.norm_blind:
        return 1.0
    mine, theirs = at.amplitudes[one], at.amplitudes[other]
    return max(0.0, float(mine @ theirs / mine.square().sum().clamp_min(TINY)))


def turnable(at: Explanation, known: Parts, hidden: float) -> Bool[Tensor, " m"]:
    """Candidates whose sign, or that of a part of them, may be wrong, alone or together with others."""
    unsure = torch.zeros(len(at.candidates), dtype=torch.bool, device=at.candidates.device)
    everybody = list(range(len(at.candidates)))
    if at.features.activation.parity == "none" and at.features.bias is None:  # otherwise lost, or shown by the bias
        units = at.candidates / at.candidates.norm(dim=1, keepdim=True).clamp_min(TINY)
        able = (units @ units.T).amin(dim=1) > OPPOSITE
        unsure |= _turned(at, -at.candidates, able, hidden)
    for group in known.groups:
        unsure |= _turned(at, known.replaced(everybody, -known.seen, group), torch.ones_like(unsure), hidden)
    return unsure


def _turned(
    at: Explanation, turned: Float[Tensor, "m d"], able: Bool[Tensor, " m"], hidden: float
) -> Bool[Tensor, " m"]:
    unsure, able = torch.zeros_like(able), able.nonzero()[:, 0]
    ahead, behind = at.features(at.candidates), at.features(turned)
    for change in (behind - ahead, -behind - ahead):  # the coefficient as it is, or turned too
        left = at.not_made_up(at.change(change))[able]
        unsure[able[_in_a_small_sum(left, at.residual, hidden)]] = True
    return unsure


def _in_a_small_sum(vectors: Float[Tensor, "m c"], near: Float[Tensor, " c"], hidden: float) -> Bool[Tensor, " m"]:
    """Which of m vectors are in a set whose sum s has ||s − near||² ≤ ||near||² + hidden.

    By their triangular factor: in sums of their inner products, rounding would be as large as `hidden`.
    """
    m = len(vectors)
    factors = torch.linalg.qr(vectors.T)
    along = near @ factors.Q
    sets = _sets(m).to(vectors)
    rises = (sets @ factors.R.T - along).square().sum(dim=1) - along.square().sum()
    found = (sets[rises <= hidden] > 0).any(dim=0)
    return found | (_expected_sets(factors.R, hidden) > LUCK)


def _sets(m: int) -> Float[Tensor, "s m"]:
    """All sets of m but the empty one, in rows of 0 and 1; of many, single ones, pairs and all at once."""
    if m <= ALL_SETS:
        return (torch.arange(1, 2**m)[:, None] >> torch.arange(m) & 1).double()
    eye = torch.eye(m, dtype=torch.float64)
    pairs = torch.combinations(torch.arange(m))
    return torch.cat([eye, eye[pairs[:, 0]] + eye[pairs[:, 1]], torch.ones(1, m, dtype=torch.float64)])


def _expected_sets(factor: Float[Tensor, "r m"], hidden: float) -> float:
    levels = torch.linalg.svdvals(factor).square().clamp_min(TINY)
    shares = (2 * (2 * hidden / (math.pi * levels)).sqrt()).clamp_max(1.0)
    return math.exp(min(0.0, factor.shape[1] * math.log(2) + float(shares.log().sum())))
