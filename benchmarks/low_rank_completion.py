"""What pruning took from a layer, filled in again: the change of a layer has a rank far below its size.

A pruned weight is zero, so its change is not known; all other changes are. A matrix of rank r has r (h + c - r)
numbers, far fewer than the entries that are left. Alternating least squares over the known entries; the rank is told.
"""

import torch
from torch import Tensor

ROUNDS, STILL = 12, 1e-3


def filled_in(start: Tensor, pruned: Tensor, rank: int, seed: int = 0) -> Tensor:
    """The layer before pruning: what is known as it is, what is not by the fit."""
    known = (pruned != 0).double()
    change = (pruned.double() - start.double()) * known
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _, sizes, right = torch.svd_lowrank(change / known.mean(), q=rank, niter=4)
    right, before = right * sizes.sqrt(), 1.0
    for _ in range(ROUNDS):
        left = _solved(right, known, change)
        right = _solved(left, known.T, change.T)
        residual = float(((left @ right.T - change) * known).norm() / change.norm())
        if residual > (1 - STILL) * before:
            break
        before = residual
    return torch.where(known > 0, pruned, (start.double() + left @ right.T).to(pruned))


def _solved(factor: Tensor, known: Tensor, change: Tensor) -> Tensor:
    """For each row of the change, least squares on the factor over the entries that are known."""
    rank = factor.shape[1]
    products = (factor[:, :, None] * factor[:, None, :]).reshape(len(factor), -1)
    gram = (known @ products).reshape(-1, rank, rank)
    ridge = 1e-12 * gram.diagonal(dim1=1, dim2=2).mean(dim=1)
    gram = gram + ridge[:, None, None] * torch.eye(rank, dtype=gram.dtype)
    return torch.linalg.solve(gram, (change @ factor)[:, :, None])[:, :, 0]
