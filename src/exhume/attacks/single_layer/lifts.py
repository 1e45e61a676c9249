"""How the samples that candidates stand for move with the candidates."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Lift = Callable[[Float[Tensor, "m c"]], Float[Tensor, "m d"]]
DIFFERENCE = 1e-6  # of a candidate's norm
PROBES = 8


def lifted_moves(lift: Lift, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m e c"]:
    """R of the QR factors of the derivative of each sample: ||R dz|| is how far the sample of z moves."""
    c = candidates.shape[1]
    ways = torch.eye(c).to(candidates)
    moves = torch.stack([_moved(lift, candidates, way.expand_as(candidates)) for way in ways], dim=2)
    return torch.linalg.qr(moves).R


def mean_gains(lift: Lift, candidates: Float[Tensor, "m c"]) -> Float[Tensor, " m"]:
    """The mean of ||dx||² / ||dz||² over random moves: exact for those at the same length in all directions."""
    stream = torch.Generator().manual_seed(0)
    gains = torch.zeros(len(candidates)).to(candidates)
    for _ in range(PROBES):
        way = torch.randn(candidates.shape, generator=stream).to(candidates)
        way = way / way.norm(dim=1, keepdim=True)
        gains += _moved(lift, candidates, way).square().sum(dim=1) / PROBES
    return gains


def _moved(lift: Lift, candidates: Float[Tensor, "m c"], ways: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
    """The derivative of the samples along unit vectors, by differences in double precision."""
    steps = DIFFERENCE * candidates.norm(dim=1, keepdim=True).clamp_min(torch.finfo(candidates.dtype).tiny)
    return (lift(candidates + steps * ways) - lift(candidates - steps * ways)) / (2 * steps)
