"""Training records held against candidates: which came back, each by its own measure.

A record x is *recovered* by the candidate x̂ that was matched with it, one to one, if

    ‖x − x̂‖ < 0.1 ‖x‖    and    ‖x − x̂‖ < ‖x − c‖ for every record c of the kind that was not trained on.

A record of a table counts as well where every one of its cells comes back exactly (`exact`).

The first is about the record's own norm, because the rows of one table differ in norm by a hundred. The second is what
somebody could say who has never seen the weights: records of a kind are alike, faces and scans above all, and another
one of them is no recovery. A control record counts as recovered by the first rule, and where the candidate is closer to
it than to every training record: near-copies of a training record do not come back with it.

Where records are that alike, a candidate is close to one of them by luck: `chance_of` says how likely that is.

Signs are free only where the weights cannot tell them, norms likewise (`directions_only`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import binom
from torch import Tensor

from exhume.metrics.errors import RECOVERED_DISTANCE
from exhume.metrics.matching import Matching, match_by_norm, to_norm

STAND_INS = 1000
"""Records that stand in for candidates: enough to know small shares, and few enough for large data sets."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """`matching.distance` is ‖x − x̂‖ / ‖x‖, at most 1. `nearest` is what it has to beat, over the same norm."""

    matching: Matching
    nearest: Float[Tensor, " n"] | None = None
    exact: Bool[Tensor, " n"] | None = None
    """Records of a table whose cells are all equal in the owner's units."""

    @property
    def errors(self) -> Float[Tensor, " n"]:
        return self.matching.distance

    @property
    def recovered(self) -> Bool[Tensor, " n"]:
        close = recovered(self.errors, self.nearest)
        return close if self.exact is None else close | self.exact


def compare(
    records: Float[Tensor, "n d"],
    candidates: Float[Tensor, "m d"],
    others: Float[Tensor, "c d"] | None = None,
    *,
    of_control: bool = False,
    directions_only: bool = False,
    sign_free: bool = False,
) -> Comparison:
    """`others` are control records, or, of control records, those that were trained on.

    >>> x = torch.tensor([[3.0, 4.0], [30.0, 40.0]])
    >>> found = compare(x, torch.tensor([[3.0, 4.4], [30.0, 40.4]]), others=torch.tensor([[30.1, 40.1]]))
    >>> found.recovered.tolist(), compare(x, 2 * x, directions_only=True).recovered.tolist()
    ([True, False], [True, True])
    """
    x, found = records.double(), candidates.double()
    rows = None if others is None or not len(others) else others.to(x)
    if directions_only:
        x, found = to_norm(x, 1.0), to_norm(found, 1.0)
        rows = None if rows is None else to_norm(rows, 1.0)
    matching = match_by_norm(x, found, sign_free)
    if rows is None:
        return Comparison(matching)
    norms = x.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
    around = x
    if of_control and len(found):
        around = found[matching.candidate.clamp_min(0)] * matching.sign.to(found)[:, None]
    return Comparison(matching, torch.cdist(around, rows).amin(dim=1) / norms)


def recovered(errors: Float[Tensor, " n"], nearest: Float[Tensor, " n"] | None) -> Bool[Tensor, " n"]:
    close = errors < RECOVERED_DISTANCE
    return close if nearest is None else close & (errors < nearest)


def chance_of(
    came: Comparison,
    records: Float[Tensor, "n d"],
    candidates: int,
    *,
    directions_only: bool = False,
    sign_free: bool = False,
) -> float:
    """How likely so many records come back so closely if candidates are no more than rows of the same kind.

    Each record stands in for such a row. With F(e) the share of them that have another record within e, the j closest
    of m candidates come that close by luck with P(Bin(m, F(eⱼ)) ≥ j); the least of these, times their number, is the
    chance of all. Below the closest pair F falls like e, the slowest way in which the volume around a record can, down
    to the grain of the numbers: rounded to it, rows are the same. Where no two records are within 0.1 of each other
    nothing is known of luck, and it counts as none.

    >>> two = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
    >>> alike, others = 30 + two
    >>> chance_of(compare(alike, alike), alike, 8) < 1e-9, chance_of(compare(alike, others), alike, 8) > 0.5
    (True, True)
    """
    errors = came.errors[came.recovered]
    exact = came.exact is not None and bool((came.exact & came.recovered).any())
    x = to_norm(records.double(), 1.0) if directions_only else records.double()
    apart = _to_another(x, sign_free)
    if exact or not len(errors) or not len(apart) or apart[0] >= RECOVERED_DISTANCE:
        return 0.0
    steps = np.arange(1, len(apart) + 1) / (len(apart) + 1)
    coarse = np.sort(torch.maximum(errors, _grain(x)[came.recovered]).numpy())
    share = np.interp(coarse, np.concatenate([[0.0], apart]), np.concatenate([[0.0], steps]))
    chances = binom.sf(np.arange(len(errors)), max(candidates, len(errors)), share)
    return float(min(1.0, len(errors) * chances.min()))


def _grain(x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """A step of each number, the smallest between two records, all together over each record's norm."""
    gaps = x.sort(dim=0).values.diff(dim=0)
    steps = gaps.where(gaps > 0, torch.inf).amin(dim=0)
    return steps[steps.isfinite()].norm() / x.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)


def _to_another(x: Float[Tensor, "n d"], sign_free: bool) -> np.ndarray:
    """How far stand-ins are from the nearest other record, over its norm, in order."""
    chosen = torch.linspace(0, len(x) - 1, min(len(x), STAND_INS)).round().long()
    apart = torch.cdist(x[chosen], x)
    if sign_free:
        apart = torch.minimum(apart, torch.cdist(-x[chosen], x))
    apart[torch.arange(len(chosen)), chosen] = torch.inf
    over = apart / x.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
    nearest = over.amin(dim=1)
    return np.sort(nearest[nearest.isfinite()].numpy())


def of_another(records: Float[Tensor, "n d"], others: Float[Tensor, "c d"] | None) -> Float[Tensor, "n d"] | None:
    """For each record another one of its kind, which is what chance would show: a control record, or else the next
    training record; None where there is none.

    >>> of_another(torch.tensor([[1.0], [2.0]]), None).tolist(), of_another(torch.ones(1, 1), None)
    ([[2.0], [1.0]], None)
    """
    if others is not None and len(others):
        return others.to(records)[torch.arange(len(records)) % len(others)]
    return records.roll(-1, dims=0) if len(records) > 1 else None
