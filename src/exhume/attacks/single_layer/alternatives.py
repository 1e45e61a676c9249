"""Other explanations that are not near: parts of samples exchanged, and signs turned.

*Parts.* Where no row of V joins some columns to the others (a convolution whose stride is its kernel, block-diagonal
rows), each weight shows the parts of the samples in one group of columns, and only the coefficient ties parts together:

    θ_k = Σ_i A_i φ(v_k · x_i^(g)),   g the group of row k.

Two candidates may exchange a part where their coefficients are alike. Where φ is homogeneous, they may always do so if
their coefficients have the same sign, because the scale of a part makes up for the difference.

*Signs.* Where φ(z) − φ(−z) = c z, candidates S may be turned if Σ_S A_i x_i = 0; where φ(z) + φ(−z) is a constant, if
Σ_S A_i = 0. One of them, or several at once: every set is tried where candidates are few. But the sum need not be zero.
Two opposite samples look like one, and leave the same line or constant as a turned set; no one knows of which size. So
the number of sets that chance puts within √h of any given sum must be small, too. 2^m sets have sums that scatter as
N(½ Σ_i l_i, ¼ Σ_i l_i l_iᵀ), l_i what turning candidate i leaves in the weights. Along the direction j of variance
λ_j / 4 a share of at most 2 √(2 h / π λ_j) of them is as close.

Each changes the weights by a vector, of which coefficients and candidates may make up for a part by moving a little
(`linearised.py`). Where what is left is below the noise, the weights do not tell.
"""

import itertools
import math

import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from exhume.attacks.foundation.certificate import LUCK
from exhume.attacks.single_layer.linearised import TINY, Explanation

JOINED = 1e-6  # of a row's largest number: what it has in a column that it reads
OPPOSITE = -0.9  # a cosine: where the opposite of a candidate is one too, turning it would leave nothing in its place
ALL_SETS = 14  # candidates up to which every set of them is turned: 16,384 sets


def column_groups(rows: Float[Tensor, "p d"]) -> Int[Tensor, " d"]:
    """The group of each column: two columns are in one where a row reads both, or a chain of rows joins them."""
    read = (rows.abs() > JOINED * rows.abs().amax(dim=1, keepdim=True)).to(torch.float32)
    if bool(read.all(dim=1).any()):
        return torch.zeros(rows.shape[1], dtype=torch.int64)
    return torch.from_numpy(connected_components(csr_matrix((read.T @ read).cpu().numpy()))[1]).long()


def exchangeable(at: Explanation, hidden: float) -> Bool[Tensor, " m"]:
    """Candidates of which a part may be another one's: the exchange leaves no more than `hidden` in the weights."""
    groups, m = column_groups(at.rows).to(at.rows.device), len(at.candidates)
    unsure = torch.zeros(m, dtype=torch.bool, device=at.rows.device)
    if int(groups.max()) == 0:
        return unsure
    for one, other in itertools.combinations(range(m), 2):
        factor = _factor(at, one, other)
        pair, amplitudes = at.candidates[[one, other]], at.amplitudes[[one, other]]
        for group in range(int(groups.max()) + 1) if factor else ():
            mine = groups == group
            changed = torch.where(mine, torch.stack([factor * pair[1], pair[0] / factor]), pair)
            difference = at.features(changed) - at.features(pair)
            change = (amplitudes.T @ difference).reshape(1, -1)
            if float(at.not_made_up(change).square().sum()) <= hidden:
                unsure[[one, other]] = True
    return unsure


def _factor(at: Explanation, one: int, other: int) -> float:
    """By what the other's part is multiplied where it takes the place of one's; 0 where no factor is right."""
    if not at.features.norm_blind:
        return 1.0
    mine, theirs = at.amplitudes[one], at.amplitudes[other]
    return max(0.0, float(mine @ theirs / mine.square().sum().clamp_min(TINY)))


def turnable(at: Explanation, hidden: float) -> Bool[Tensor, " m"]:
    """Candidates whose sign may be wrong, alone or together with others."""
    unsure = torch.zeros(len(at.candidates), dtype=torch.bool, device=at.candidates.device)
    if at.features.activation.parity != "none" or at.features.bias is not None:
        return unsure  # lost altogether, or shown by the bias
    units = at.candidates / at.candidates.norm(dim=1, keepdim=True).clamp_min(TINY)
    able = ((units @ units.T).amin(dim=1) > OPPOSITE).nonzero()[:, 0]
    ahead, behind = at.features(at.candidates), at.features(-at.candidates)
    for turned in (ahead - behind, ahead + behind):  # the coefficient as it is, or turned too
        left = at.not_made_up(at.change(turned))[able]
        unsure[able[_in_a_small_sum(left, hidden)]] = True
    return unsure


def _in_a_small_sum(vectors: Float[Tensor, "m c"], hidden: float) -> Bool[Tensor, " m"]:
    """Which of m vectors are in a set whose sum has at most this square.

    By their triangular factor: in sums of their inner products, rounding would be as large as `hidden`.
    """
    m = len(vectors)
    factor = torch.linalg.qr(vectors.T, mode="r").R
    sets = _sets(m).to(factor)
    small = (sets @ factor.T).square().sum(dim=1) <= hidden
    found = (sets[small] > 0).any(dim=0)
    return found | (_expected_sets(factor, hidden) > LUCK)


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
