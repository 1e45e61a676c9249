"""How well a head fits a record: what it was trained for, held against what it says.

A head that was trained to interpolation gives its training records exactly their targets, and other records anything;
with k outputs a chance hit within r of a target has a probability of order r^k. So −log r is evidence, and decides
everything where training went to the end. Where labels are not known, there are few targets: the nearest one counts.

- square loss: r is the distance of the output to the target;
- other losses: minus the loss of the record. Training only ever approaches 0, other records of easy classes come close
  as well, and this is weak evidence.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.probes.residuals import check_loss, predicted, residuals

SMALLEST_DISTANCE = 1e-12


def head_fit(
    head: Float[Tensor, "k p"], embeddings: Float[Tensor, "m p"], loss: str, labels: Float[Tensor, " m"] | None = None
) -> Float[Tensor, " m"]:
    """One score a record, larger for a better fit.

    >>> head_fit(torch.eye(2), torch.tensor([[1.0, 0.0], [0.9, 0.1]]), "square").argmax().item()
    0
    """
    check_loss(loss, len(head))
    outputs = embeddings.double() @ head.double().T
    own = predicted(outputs, loss) if labels is None else labels
    away = residuals(outputs, own, loss)
    match loss:
        case "square" | "signed-square":
            return -away.norm(dim=1).clamp_min(SMALLEST_DISTANCE).log()
        case "logistic":
            return torch.nn.functional.logsigmoid(outputs[:, 0] * (2 * own - 1))
        case "cross-entropy":
            return torch.log_softmax(outputs, dim=1).gather(1, own.long()[:, None])[:, 0]
    return -away.square().sum(dim=1) / 4
