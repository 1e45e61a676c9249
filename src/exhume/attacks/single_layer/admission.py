"""Features that an attack could be fooled by, refused at the door.

Rows that occur twice would appear among the used and the held-out weights alike and so certify themselves; so would
rows that differ in what φ does not see: by a positive factor (homogeneous φ), by a sign (odd or even φ). Rows that do
not span the space determine only the projection of the data on their span. Rows that are drawn from a seed have none of
these faults. Rows that nearly repeat each other, or look into some directions less than into others, are let in: what
they determine is what `linearised.py` finds.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import Activation
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import blocks

SINGULAR = 1e-10  # of the largest eigenvalue of VᵀV, which rounding alone does not reach
ENOUGH_ROWS = 4  # times d, to judge the directions by
DIRECTIONS = 4  # so many numbers tell rows apart
RESOLUTION = 1e-5  # between rows of norm 1
FEW_DIMENSIONS = 4  # up to which rows of norm 1 come so near to each other by chance


def check_features(features: RidgeFeatures, ranks: Ranks = ALONE) -> None:
    """Raises for features with repeated rows, or (p ≥ d) with rows that leave directions out."""
    if features.rows.independent:
        return
    _check_repeated(features, ranks)
    if features.p >= features.d:
        _check_directions(features)


def _check_repeated(features: RidgeFeatures, ranks: Ranks) -> None:
    """Rows with the same products with a few random directions, the bias counted in, are the same; dead ones may be."""
    stream = torch.Generator().manual_seed(1)
    directions = torch.randn(features.d + 1, DIRECTIONS, generator=stream, dtype=torch.float64)
    own, numbers = ranks.share.of(features), ranks.share.numbers(features.p)
    marks = torch.zeros(features.p, DIRECTIONS, dtype=torch.float64)
    for block in blocks(own.rows):
        rows = own.rows.block(block.start, block.stop).double().cpu()
        bias = torch.zeros(len(rows)).double() if own.bias is None else own.bias[block].double().cpu()
        seen = torch.cat([rows, bias[:, None]], dim=1)
        marks[numbers[block]] = _as_seen_by(features.activation, seen) @ directions
    marks = ranks.sum(marks)
    if not torch.isfinite(marks).all():
        raise ExhumeError("expected finite rows of V, found NaN or infinite ones; check the features file")
    alive = marks[marks.any(dim=1)]
    if _norms_do_not_matter(features.activation, len(directions)):
        alive = torch.round(alive / RESOLUTION)  # a factor leaves its rounding
    repeated = len(alive) - len(torch.unique(alive, dim=0))
    if repeated:
        raise ExhumeError(
            f"expected features that differ, found {repeated} rows of V that occur again; remove them, because "
            "repeated weights would certify themselves"
        )


def _as_seen_by(activation: Activation, rows: Float[Tensor, "p e"]) -> Float[Tensor, "p e"]:
    """Rows (v, b) in a form that is the same for all that give the same equation."""
    if activation.parity != "none":
        first = rows.gather(1, (rows != 0).int().argmax(dim=1, keepdim=True))
        rows = rows * torch.where(first < 0, -1.0, 1.0)
    if _norms_do_not_matter(activation, rows.shape[1]):
        rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    return rows


def _norms_do_not_matter(activation: Activation, entries: int) -> bool:
    return activation.homogeneous and entries > FEW_DIMENSIONS


def _check_directions(features: RidgeFeatures) -> None:
    square, alive = torch.zeros(features.d, features.d, dtype=torch.float64), 0
    for block in blocks(features.rows):
        rows = features.rows.block(block.start, block.stop).double().cpu()
        square += rows.T @ rows
        alive += int(rows.any(dim=1).sum())
        if alive >= ENOUGH_ROWS * features.d:
            break
    values = torch.linalg.eigvalsh(square)
    rank = int((values > SINGULAR * values[-1]).sum())
    if rank < features.d:
        raise ExhumeError(
            f"expected rows of V that span all {features.d} dimensions, found rank {rank}: only the projection of the "
            "data on them is determined; give the data in those coordinates instead"
        )
