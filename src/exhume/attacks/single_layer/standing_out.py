"""Which candidates stand out, where the features drifted.

Training moves the features, so that θ = Σ αᵢ φ(v·xᵢ) + drift, and every further candidate explains a little more of the
drift: by their scores none of them can be spared. But a sample explains far more than they do. Sorted by what its
removal costs, c₁ ≥ c₂ ≥ … ≥ c_m, the set is cut at a wide gap c_i / c_{i+1} (c_{m+1} is the loss) below which

- what is left without the lower part is a small share of c_i, and
- no candidate of the lower part explains most of it by itself, as a weak sample would.

Of several such cuts the lowest is taken. While candidates are added where the residual points, that no sample is
missing can be known once several were added that are all below the cut.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.single_layer.span import Fit, SpanLoss

WIDE = 30.0  # a gap between samples and what only explains drift
SHARE = 0.05  # of what the least sample explains: so much may be drift
MOST = 0.3  # of what is left: a candidate that explains more of it may be a weak sample
TRIED = 3  # candidates below the gap that show that no sample is missing


@dataclass(frozen=True, eq=False, repr=False)
class Standing:
    upper: Bool[Tensor, " m"]
    left: float
    """The loss without the others."""

    @property
    def complete(self) -> bool:
        """Whether another sample would have shown itself."""
        return int((~self.upper).sum()) >= TRIED


def standing_out(loss: SpanLoss, fit: Fit) -> Standing | None:
    costs, order = removal_costs(fit, loss).sort(descending=True)
    following = torch.cat([costs[1:], costs.new_tensor([fit.loss])])
    for last in (costs >= WIDE * following).nonzero()[:, 0].flip(0).tolist():
        upper = torch.zeros(len(order), dtype=torch.bool, device=order.device)
        upper[order[: last + 1]] = True
        left = fit.loss if bool(upper.all()) else loss.fit(fit.candidates[upper]).loss
        spread = bool(upper.all()) or float(following[last]) <= MOST * left
        if spread and left <= SHARE * float(costs[last]):
            return Standing(upper, left)
    return None
