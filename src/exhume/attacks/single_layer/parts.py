"""Parts of samples: what different groups of rows of V see of them.

Where rows lie in two subspaces that have nothing in common (block-diagonal rows, a convolution whose stride is its
kernel, in whatever coordinates), a weight shows one part of each sample. Any two parts are those of some sample: it may
have preactivations z_i on the rows of one group and z_j on all others. In coordinates where VᵀV = I the groups are
orthogonal,

    (u_k · u_l)² = 0 for unit rows u_k, u_l of different groups,    and 1/d on average for rows drawn at random.

Groups are merged by their mean likeness, the most alike first. Those that are less alike than a tenth of what chance
makes rows are parts. Rows that nearly lie in subspaces are parts, too: it is for the weights to say whether they join
what the rows hardly do (`alternatives.py`). All groups on the way are returned, because two parts may be joined with
each other and not with a third. In more than `DENSE` dimensions the rows' own coordinates have to do.
"""

import torch
from jaxtyping import Bool, Float
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from exhume.attacks.foundation.unknowns import DENSE

APART_ROWS = 0.1  # of 1/d: rows that join two halves and are fewer, or fainter, than this may hide in noise
LOOKED_AT = 1000  # rows whose likeness is looked at; the others belong to the group that is most like them
NOT_SEEN = 1e-12  # of the largest eigenvalue of VᵀV


def parts(rows: Float[Tensor, "p d"]) -> list[Bool[Tensor, " p"]]:
    """Groups of rows that see a part of their own; none where all rows see the whole."""
    p, d = rows.shape
    if d < 2 or p < 2:
        return []
    units, most = (_white(rows), max(LOOKED_AT, 2 * d)) if d <= DENSE else (rows, LOOKED_AT)
    if d <= DENSE and not 2 <= units.shape[1] < p:
        return []
    units = units / units.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    order = torch.randperm(p, generator=torch.Generator().manual_seed(0))[:most].to(rows.device)
    likeness = (units[order] @ units[order].T).square()
    least = APART_ROWS / units.shape[1]
    upper = torch.triu_indices(len(order), len(order), 1)
    merges = linkage((1 - likeness[upper[0], upper[1]]).cpu().numpy(), "average")
    if merges[-1, 2] <= 1 - least:
        return []
    labels = torch.from_numpy(fcluster(merges, 1 - least, "distance")).to(rows.device) - 1
    means = torch.stack([(units @ units[order[labels == leaf]].T).square().mean(dim=1) for leaf in labels.unique()])
    mine = means.argmax(dim=0)
    members: dict[int, Tensor] = {index: labels[index : index + 1] for index in range(len(order))}
    found: list[Bool[Tensor, " p"]] = []
    for step, (one, other, height, _) in enumerate(merges.tolist()):
        joined = [members.pop(round(one)), members.pop(round(other))]
        if height > 1 - least:
            found += [torch.isin(mine, leaves) for leaves in joined]
        members[len(order) + step] = torch.cat(joined).unique()
    return found


def _white(rows: Float[Tensor, "p d"]) -> Float[Tensor, "p r"]:
    """In r ≤ d coordinates where the rows seem to come from all directions alike."""
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    seen = values > NOT_SEEN * values[-1]
    return rows @ (vectors[:, seen] * values[seen].rsqrt())


def inverse(rows: Float[Tensor, "p d"]) -> Float[Tensor, "p d"]:
    """(V⁺)ᵀ: what is seen, times this, is the least input that is seen so."""
    if min(rows.shape) <= DENSE:
        return torch.linalg.pinv(rows).T
    p, d = rows.shape
    gram = rows @ rows.T if p < d else rows.T @ rows
    gram.diagonal().add_(NOT_SEEN * float(gram.diagonal().mean()))
    solved = torch.cholesky_solve(rows if p < d else rows.T, torch.linalg.cholesky(gram))
    return solved if p < d else solved.T
