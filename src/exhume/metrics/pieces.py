"""Records held against what came back in pieces: patches of images, or embeddings.

A record is v pieces, and each distinct piece of all records is matched with one candidate at most. Equal pieces (two
patches of one blank wall) are one piece to a layer, and so they are here. Errors are over a piece's own norm, or over a
tenth of the median norm where it is fainter: a black patch has no norm of its own.

A record counts by the error that nine tenths of its pieces keep below.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.metrics.matching import match_by_norm, to_norm

SHARE = 0.9  # of the pieces of a record that have to come back for the record to count
FAINT = 0.1  # of the median norm


def piece_errors(
    pieces: Float[Tensor, "n v c"], candidates: Float[Tensor, "m c"], directions_only: bool = False
) -> Float[Tensor, "n v"]:
    """‖piece − candidate‖ / ‖piece‖ after one-to-one matching of distinct pieces; 1 for a piece left without one.

    >>> twice = torch.tensor([[[3.0, 4.0], [3.0, 4.0]]])
    >>> piece_errors(twice, torch.tensor([[3.0, 3.0]])).tolist()
    [[0.2, 0.2]]
    """
    n, v, _ = pieces.shape
    distinct, place = torch.unique(pieces.detach().cpu().double().flatten(0, 1), dim=0, return_inverse=True)
    found = candidates.detach().cpu().double()
    if directions_only:
        distinct, found = to_norm(distinct, 1.0), to_norm(found, 1.0)
    norms = distinct.norm(dim=1)
    norms = norms.clamp_min(max(FAINT * float(norms.median()), torch.finfo(torch.float64).tiny))
    errors = match_by_norm(distinct, found, sign_free=False, norms=norms).distance
    return errors[place].reshape(n, v)


def nearest_pieces(pieces: Float[Tensor, "n v c"], others: Float[Tensor, "m v c"]) -> Float[Tensor, "n v"]:
    """‖piece − other‖ / ‖piece‖ for the closest piece of other records, which may stand for several."""
    flat, rows = pieces.detach().cpu().double().flatten(0, 1), others.detach().cpu().double().flatten(0, 1)
    norms = flat.norm(dim=1)
    norms = norms.clamp_min(max(FAINT * float(norms.median()), torch.finfo(torch.float64).tiny))
    apart = torch.cat([torch.cdist(part, rows).amin(dim=1) for part in flat.split(1024)])
    return (apart / norms).reshape(pieces.shape[:2])


def record_errors(errors: Float[Tensor, "n v"]) -> Float[Tensor, " n"]:
    """The error below or at which nine tenths of a record's pieces are.

    >>> record_errors(torch.tensor([[0.0, 0.1, 0.2, 0.7]])).tolist()
    [0.699999988079071]
    """
    return errors.kthvalue(math.ceil(SHARE * errors.shape[1]), dim=1).values
