"""Features that an attack could be fooled by, refused at the door.

Rows that occur twice would appear among the used and the held-out weights alike and so certify themselves. Rows that do
not span the space determine only the projection of the data on their span. Rows that are drawn from a seed have neither
fault.
"""

import torch

from exhume.attacks.ranks import ALONE, Ranks
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, blocks

_SINGULAR = 1e-10  # of the largest eigenvalue of VᵀV, which rounding alone does not reach


def check_features(features: RidgeFeatures, ranks: Ranks = ALONE) -> None:
    """Raises for features with repeated rows, or (p ≥ d) with rows that leave directions out."""
    if isinstance(features.rows, DrawnRows):
        return
    _check_repeated(features, ranks)
    if features.p >= features.d:
        _check_rank(features)


def _check_repeated(features: RidgeFeatures, ranks: Ranks) -> None:
    """Rows with the same product with a random direction and the same bias are the same; dead rows are let pass."""
    direction = torch.randn(features.d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own, numbers = ranks.share.of(features), ranks.share.numbers(features.p)
    marks = torch.zeros(features.p, 2, dtype=torch.float64)
    for block in blocks(own.rows):
        rows = own.rows.block(block.start, block.stop).double()
        marks[numbers[block], 0] = (rows @ direction.to(rows.device)).cpu()
        marks[numbers[block], 1] = 0 if own.bias is None else own.bias[block].double().cpu()
    marks = ranks.sum(marks)
    if not torch.isfinite(marks).all():
        raise ExhumeError("expected finite rows of V, found NaN or infinite ones; check the features file")
    alive = marks[marks[:, 0] != 0]
    repeated = len(alive) - len(torch.unique(alive, dim=0))
    if repeated:
        raise ExhumeError(
            f"expected features that differ, found {repeated} rows of V that occur again; remove them, because "
            "repeated weights would certify themselves"
        )


def _check_rank(features: RidgeFeatures) -> None:
    square = torch.zeros(features.d, features.d, dtype=torch.float64)
    for block in blocks(features.rows):
        rows = features.rows.block(block.start, block.stop).double().cpu()
        square += rows.T @ rows
        if block.stop >= 4 * features.d and _rank(square) == features.d:
            return
    rank = _rank(square)
    if rank < features.d:
        raise ExhumeError(
            f"expected rows of V that span all {features.d} dimensions, found rank {rank}: only the projection of the "
            "data on them is determined; give the data in those coordinates instead"
        )


def _rank(square: torch.Tensor) -> int:
    values = torch.linalg.eigvalsh(square)
    return int((values > _SINGULAR * values[-1]).sum())
