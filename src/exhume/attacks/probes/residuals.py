"""What a head still has to learn of each record: e_i = −∂ℓ/∂f at its own outputs, for a record of a known target.

    square            ½ |y − f|²               e = y − f               y: one-hot, or the number itself for one output
    signed-square     ½ |s − f|²               e = s − f               s = +1 for the own class, −1 for the others
    logistic          log(1 + exp(−s f))       e = y − σ(f)            one output, y in {0, 1}, s = 2y − 1
    cross-entropy     −log softmax(f)_y        e = y − softmax(f)
    squared-hinge     max(0, 1 − s f)²         e = 2 s max(0, 1 − s f)

scikit-learn: Ridge is square, RidgeClassifier signed-square, LogisticRegression logistic or cross-entropy, LinearSVC
squared-hinge. The plain hinge has no slope at its margin, where most of its records are, and tells no e there.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import UsageError

HeadLoss = Literal["square", "signed-square", "logistic", "cross-entropy", "squared-hinge"]


def check_loss(loss: str, outputs: int) -> None:
    if loss not in get_args(HeadLoss):
        raise UsageError(f"expected a loss out of {', '.join(get_args(HeadLoss))}, found {loss!r}")
    if loss == "logistic" and outputs != 1:
        raise UsageError(f"expected one output for the logistic loss, found {outputs}; see cross-entropy")
    if loss == "cross-entropy" and outputs == 1:
        raise UsageError("expected several outputs for the cross-entropy, found one; see logistic")


def predicted(outputs: Float[Tensor, "m k"], loss: str) -> Float[Tensor, " m"]:
    """The likeliest label of each record, for records without one: a class, or the nearest of −1 and 1 for the square
    loss of one output."""
    if outputs.shape[1] > 1:
        return outputs.argmax(dim=1).double()
    above = (outputs[:, 0] > 0).double()
    return 2 * above - 1 if loss == "square" else above


def residuals(outputs: Float[Tensor, "m k"], labels: Float[Tensor, " m"], loss: str) -> Float[Tensor, "m k"]:
    """One row per record. `labels` are classes from 0 on; for the square loss of one output the number to predict.

    >>> residuals(torch.tensor([[0.25]]), torch.tensor([1.0]), "square").tolist()
    [[0.75]]
    """
    k = outputs.shape[1]
    check_loss(loss, k)
    outputs = outputs.double()
    if loss == "square" and k == 1:
        return labels.double()[:, None] - outputs
    own = _own_class(labels, k)
    sides = 2 * own - 1
    match loss:
        case "square":
            return own - outputs
        case "signed-square":
            return sides - outputs
        case "logistic":
            return own - torch.sigmoid(outputs)
        case "cross-entropy":
            return own - torch.softmax(outputs, dim=1)
    return 2 * sides * (1 - sides * outputs).clamp_min(0)


def _own_class(labels: Float[Tensor, " m"], k: int) -> Float[Tensor, "m k"]:
    """One-hot; for one output the class itself, 0 or 1."""
    classes = labels.long()
    most = 1 if k == 1 else k - 1
    if not torch.equal(classes.double(), labels.double()) or (len(labels) and not int(classes.min()) >= 0):
        raise UsageError("expected labels as classes 0, 1, 2, ..., found others")
    if len(labels) and int(classes.max()) > most:
        raise UsageError(f"expected classes from 0 to {most} for {k} outputs, found {int(classes.max())}")
    return classes.double()[:, None] if k == 1 else torch.nn.functional.one_hot(classes, k).double()
