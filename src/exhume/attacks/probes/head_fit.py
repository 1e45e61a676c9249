"""How well a head fits a record: what it was trained for, held against what it says.

A head that was trained to interpolation gives its training records exactly their targets, and other records anything;
with k outputs a chance hit within r of a target has a probability of order r^k. So −log r is evidence, and decides
everything where training went to the end. Targets are not known, but there are few of them: the nearest one counts.

- square loss: r is the distance of the output to the nearest one-hot vector, for one output to −1 or +1;
- cross-entropy and logistic loss: the log-probability of the likeliest class; training only ever approaches 0, other
  records of easy classes come close as well, and this is weak evidence.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import UsageError

HeadLoss = Literal["square", "logistic", "cross-entropy"]
SMALLEST_DISTANCE = 1e-12


def head_fit(head: Float[Tensor, "k p"], embeddings: Float[Tensor, "m p"], loss: str) -> Float[Tensor, " m"]:
    """One score a record, larger for a better fit.

    >>> head_fit(torch.eye(2), torch.tensor([[1.0, 0.0], [0.9, 0.1]]), "square").argmax().item()
    0
    """
    if loss not in get_args(HeadLoss):
        raise UsageError(f"expected a loss out of {', '.join(get_args(HeadLoss))}, found {loss!r}")
    outputs = embeddings.double() @ head.double().T
    if loss == "square":
        targets = torch.tensor([[-1.0], [1.0]]) if len(head) == 1 else torch.eye(len(head))
        distances = torch.cdist(outputs, targets.to(outputs), compute_mode="donot_use_mm_for_euclid_dist")
        return -distances.amin(dim=1).clamp_min(SMALLEST_DISTANCE).log()
    if loss == "logistic":
        if len(head) != 1:
            raise UsageError(f"expected one output for the logistic loss, found {len(head)}")
        return torch.nn.functional.logsigmoid(outputs[:, 0].abs())
    return torch.log_softmax(outputs, dim=1).amax(dim=1)
