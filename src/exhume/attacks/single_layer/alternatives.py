"""Other explanations that are not near: parts of samples exchanged, and signs turned.

*Parts.* Where no row of V joins some columns to the others (a convolution whose stride is its kernel, rows that are
block-diagonal), the weights are sums over the groups of columns, and a sample is tied together by its coefficient alone:

    θ_k = Σ_i A_i φ(v_k · x_i^(g)),   g the group of row k.

Two candidates may exchange a part where their coefficients are alike; where φ is homogeneous, always if the coefficients
have the same sign, because the scale of a part makes up for them.

*Signs.* Where φ(z) − φ(−z) = c z, candidates S may be turned if Σ_S A_i x_i = 0; where φ(z) + φ(−z) is a constant, if
Σ_S A_i = 0. One of them, or several at once.

Each changes the weights by a vector, of which coefficients and candidates may make up for a part by moving a little
(`linearised.py`). Where what is left is below the noise, the weights do not tell.
"""

import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from exhume.attacks.single_layer.linearised import Linearised
from exhume.attacks.single_layer.span import Fit, SpanLoss

JOINED = 1e-6  # of a row's largest number: what it has in a column that it reads
ALL_SUBSETS = 10  # candidates up to which every set of them is turned; of more, single ones, pairs and all at once


def column_groups(rows: Float[Tensor, "p d"]) -> Int[Tensor, " d"]:
    """The group of each column: two columns are in one where a row reads both, or a chain of rows joins them."""
    read = (rows.abs() > JOINED * rows.abs().amax(dim=1, keepdim=True)).to(torch.float32)
    if bool(read.all(dim=1).any()):
        return torch.zeros(rows.shape[1], dtype=torch.int64)
    return torch.from_numpy(connected_components(csr_matrix((read.T @ read).cpu().numpy()))[1]).long()


def exchangeable(loss: SpanLoss, fit: Fit, linearised: Linearised, hidden: float) -> Bool[Tensor, " m"]:
    """Candidates of which a part may be another one's: the exchange leaves no more than `hidden` in the weights."""
    groups = column_groups(linearised.rows)
    m = len(fit.candidates)
    unsure = torch.zeros(m, dtype=torch.bool)
    if int(groups.max()) == 0:
        return unsure
    candidates, amplitudes = fit.candidates.double(), linearised.amplitudes
    before = amplitudes.T[:, :, None] * linearised.values(loss, candidates)
    for one, other in itertools.combinations(range(m), 2):
        factor = _factor(loss, amplitudes[one], amplitudes[other])
        if factor is None:
            continue
        for group in range(int(groups.max()) + 1):
            part = (groups == group).to(candidates.device)
            pair = candidates[[one, other]].clone()
            pair[0, part], pair[1, part] = factor * candidates[other, part], candidates[one, part] / factor
            after = amplitudes[[one, other]].T[:, :, None] * linearised.values(loss, pair)
            change = (after - before[:, [one, other]]).sum(dim=1)
            if float(linearised.not_made_up(change.reshape(1, -1)).square().sum()) <= hidden:
                unsure[[one, other]] = True
    return unsure


def _factor(loss: SpanLoss, one: Float[Tensor, " r"], other: Float[Tensor, " r"]) -> float | None:
    """By what the other's part is multiplied where it takes the place of one's; None where no factor is right."""
    if not loss.features.norm_blind:
        return 1.0
    factor = float(one @ other / one.square().sum().clamp_min(torch.finfo(one.dtype).tiny))
    return factor if factor > 0 else None


def turnable(loss: SpanLoss, fit: Fit, linearised: Linearised, hidden: float) -> Bool[Tensor, " m"]:
    """Candidates whose sign may be wrong, alone or together with others."""
    m, activation = len(fit.candidates), loss.features.activation
    unsure = torch.zeros(m, dtype=torch.bool)
    if activation.parity != "none" or loss.features.bias is not None:
        return unsure
    candidates = fit.candidates.double()
    ahead, behind = linearised.values(loss, candidates), linearised.values(loss, -candidates)
    left = []
    for sign in (1, -1):  # the coefficient as it is, or turned too
        changes = linearised.amplitudes.T[:, :, None] * (ahead - sign * behind)
        left.append(linearised.not_made_up(changes.transpose(0, 1).reshape(m, -1)))
    for vectors in left:
        gram = vectors @ vectors.T
        for chosen in _subsets(m):
            index = torch.tensor(chosen)
            if float(gram[index][:, index].sum()) <= hidden:
                unsure[index] = True
    return unsure


def _subsets(m: int) -> Iterator[tuple[int, ...]]:
    most = m if m <= ALL_SUBSETS else 2
    for size in range(1, most + 1):
        yield from itertools.combinations(range(m), size)
    if most < m:
        yield tuple(range(m))
