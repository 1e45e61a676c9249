"""Which candidates stand out, where the features drifted.

Training moves the features, so that θ = Σ αᵢ φ(v·xᵢ) + drift, and every further candidate explains a little more of the
drift: by their scores none of them can be spared. But a sample explains far more than they do. Sorted by what its
removal costs, c₁ ≥ c₂ ≥ … ≥ c_m, the set is cut at the widest gap c_i / c_{i+1} (c_{m+1} is the loss); the upper part
stands out if the gap is wide, and if what is left without the lower part is a small share of c_i.

A sample that is missing would have to explain less than that. While candidates are added where the residual points,
that can be told in two ways: next to nothing is left, or several were added and each of them explains little.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from exhume.attacks.ridge.pruning import removal_costs
from exhume.attacks.ridge.span import Fit, SpanLoss

WIDE = 30.0  # a gap between samples and what only explains drift
SHARE = 0.05  # of what the least sample explains: so much may be drift
NOTHING = 1e-3  # of it: so little is left that no further candidate is needed to tell
TRIED = 3  # candidates below the gap that show that no sample is missing


@dataclass(frozen=True, eq=False)
class Standing:
    upper: Bool[Tensor, " m"]
    left: float
    """The loss without the others."""
    least: float
    """What the least of the upper part explains."""

    @property
    def complete(self) -> bool:
        """Whether another sample would have shown itself."""
        return self.left <= NOTHING * self.least or int((~self.upper).sum()) >= TRIED


def standing_out(loss: SpanLoss, fit: Fit) -> Standing | None:
    costs, order = removal_costs(fit, loss).sort(descending=True)
    tiny = torch.finfo(costs.dtype).tiny
    gaps = costs / torch.cat([costs[1:], costs.new_tensor([fit.loss])]).clamp_min(tiny)
    last = int(gaps.argmax())
    if not gaps[last] >= WIDE:
        return None
    upper = torch.zeros(len(order), dtype=torch.bool, device=order.device)
    upper[order[: last + 1]] = True
    left = fit.loss if bool(upper.all()) else loss.fit(fit.candidates[upper]).loss
    least = float(costs[last])
    return Standing(upper, left, least) if left <= SHARE * least else None
