"""How well scores tell training records from others, where the truth is known."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.errors import UsageError


def roc_auc(members: Float[Tensor, " n"], others: Float[Tensor, " c"]) -> float:
    """The probability that a training record scores higher than another one; ties count half.

    >>> roc_auc(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 2.0]))
    0.75
    """
    _check(members, others)
    rising = others.double().sort().values
    below = torch.searchsorted(rising, members.double(), side="left")
    up_to = torch.searchsorted(rising, members.double(), side="right")
    return float((below + up_to).double().mean()) / (2 * len(others))


def detection_rate(members: Float[Tensor, " n"], others: Float[Tensor, " c"], false_alarms: float = 0.01) -> float:
    """The share of training records above a threshold that at most this share of the others is above.

    >>> detection_rate(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 2.0]))
    0.5
    """
    _check(members, others)
    allowed = int(false_alarms * len(others))
    threshold = others.double().sort(descending=True).values[allowed]
    return float((members.double() > threshold).double().mean())


def rate_interval(hits: int, tries: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson: the rates that so many hits do not rule out. It is exact for independent tries.

    >>> [round(end, 3) for end in rate_interval(9, 10)]
    [0.555, 0.997]
    """
    from scipy.stats import binomtest

    found = binomtest(hits, tries).proportion_ci(confidence, method="exact")
    return float(found.low), float(found.high)


def rows_among(
    rows: Float[Tensor, "m columns"], known: Float[Tensor, "n d"], tolerance: float = 0.03
) -> Bool[Tensor, " m"]:
    """Which rows are among the known ones: no entry differs by more than the tolerance times their root mean square.

    The tolerance is for images that were written with 8 bits in between.
    """
    if rows.shape[1] != known.shape[1]:
        raise UsageError(f"expected rows of {known.shape[1]} numbers, found {rows.shape[1]}")
    scale = float(known.double().square().mean().sqrt())
    nearest = torch.cdist(rows.double(), known.double(), p=float("inf")).amin(dim=1)
    return nearest <= tolerance * scale


def _check(members: Tensor, others: Tensor) -> None:
    if len(members) == 0 or len(others) == 0:
        raise UsageError(f"expected training records and others, found {len(members)} and {len(others)}")
