"""Units that fire on one sample only: their row of the change *is* that sample, whatever the rank.

With more samples than dimensions the span is everything, and there are no duals. But a row L_k = C_ki x̃_i of a unit
that only sample i moved gives x_i = L_k,1:d / L_k,d+1 at once. Such rows are known by their company: two units that
fired on the same sample alone have parallel rows, to rounding. So have, now and then, units that fired on the same few
samples in the same way: what is found here is a guess, to be held against records, and is not called recovered.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

PARALLEL = 5.0  # times the rounding of a direction
BLOCK = 2048


@dataclass(frozen=True, eq=False, repr=False)
class Lone:
    """Inputs that several units give, and by how many."""

    inputs: Float[Tensor, "m d"]
    units: tuple[int, ...]


def lone_samples(change: Float[Tensor, "h c"], noise: float, bias: bool) -> Lone:
    """`noise`: rounding of one entry. Groups of two units or more that have parallel rows; norms need the bias."""
    change = change.double()
    size = change.norm(dim=1)
    rough = noise * change.shape[1] ** 0.5
    alive = (size > 30 * rough).nonzero()[:, 0]
    rows, errors = change[alive] / size[alive, None], rough / size[alive]
    left = torch.ones(len(alive), dtype=torch.bool, device=change.device)
    inputs, counts = [], []
    for index in size[alive].argsort(descending=True).tolist():
        if not left[index]:
            continue
        cosine = rows @ rows[index]
        apart = (rows - cosine.sign()[:, None] * rows[index]).norm(dim=1) if cosine.numel() else cosine
        group = left & (apart < PARALLEL * (errors + errors[index]))
        left[index] = False
        if int(group.sum()) < 2:
            continue
        left &= ~group
        weight = (cosine.sign() * size[alive])[group]
        mean = (weight[:, None] * rows[group]).sum(dim=0)
        inputs.append(mean[:-1] / mean[-1] if bias else mean / mean.norm())
        counts.append(int(group.sum()))
    d = change.shape[1] - bias
    found = torch.stack(inputs) if inputs else change.new_zeros(0, d)
    return Lone(found, tuple(counts))
