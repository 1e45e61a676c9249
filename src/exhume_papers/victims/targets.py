"""What a loss compares the outputs of a network with: labels as they are, or classes one-hot."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.data.dataset import Dataset
from exhume.errors import UsageError
from exhume_papers.victims.losses import LossName


def default_outputs(data: Dataset, loss: LossName) -> int:
    """One output for labels −1 and +1 or real ones, else one for each class.

    Two classes take two outputs with cross-entropy only, which has no other way to tell them.
    """
    classes = len(data.class_names)
    if loss == "logistic" or (loss == "square" and classes <= 2):
        return 1
    return max(classes, 1)


def make_targets(data: Dataset, loss: LossName, outputs: int) -> Float[Tensor, "n k"]:
    """The labels as a column for one output, and one-hot rows of the classes for several."""
    if loss == "logistic" and outputs != 1:
        raise UsageError(
            f"expected 1 output for the logistic loss, found {outputs}; use cross-entropy for more classes"
        )
    if outputs == 1 and loss != "cross-entropy":
        if loss == "logistic" and not bool((data.labels.abs() == 1).all()):
            raise UsageError(
                "expected labels -1 and +1 for the logistic loss, found others; choose two classes or cross-entropy"
            )
        return data.labels[:, None].clone()
    classes = len(data.class_names)
    if classes < 2 or bool((data.class_index < 0).any()):
        way_out = "choose data with classes, or another loss" if loss == "cross-entropy" else "use 1 output"
        raise UsageError(
            f"expected data with at least 2 classes for {outputs} outputs ({loss}), found {classes}; {way_out}"
        )
    if outputs != classes:
        raise UsageError(f"expected one output for each of the {classes} classes, found {outputs}")
    return torch.nn.functional.one_hot(data.class_index.long(), classes).to(data.inputs.dtype)
