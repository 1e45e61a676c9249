"""What an informed adversary knows besides the observation: all training samples but one, and how the fit was made.

A fit that is stationary satisfies, with ℓ'(f, y) the derivative of its loss in the output and φ the features,

    Σ_i ℓ'(f_i, y_i) φ(x_i) + n λ D θ = 0,

where D leaves out an intercept, which is not penalised. Who knows the labels of the others, the loss and λ > 0, knows
every term of it but that of the missing sample.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError, UsageError
from exhume.files import read_tensors, require_tensors, write_tensors

KIND = "known-samples"
KNOWN_FILE = "known.safetensors"
KnownLoss = Literal["square", "logistic"]


@dataclass(frozen=True, eq=False)
class Known:
    """`labels`, `loss` and `penalty` (λ) are all given, or none of them: then only the samples are known.

    square: ℓ = (f − y)² / 2. logistic: ℓ = log(1 + exp(−y f)). `intercept`: the last feature is constant and D is 0
    there.
    """

    inputs: Float[Tensor, "j d"] = field(repr=False)
    labels: Float[Tensor, " labels"] | None = field(default=None, repr=False)
    loss: KnownLoss | None = None
    penalty: float | None = None
    intercept: bool = False

    def __post_init__(self) -> None:
        given = [value is not None for value in (self.labels, self.loss, self.penalty)]
        if any(given) and not all(given):
            raise UsageError("expected labels, loss and penalty of the known samples together, found some of them")
        if self.penalty is not None and not 0 < self.penalty < math.inf:
            raise UsageError(f"expected a positive penalty, found {self.penalty}")
        if self.labels is not None and self.labels.shape != (len(self.inputs),):
            raise UsageError(f"expected {len(self.inputs)} labels, found shape {list(self.labels.shape)}")

    def __len__(self) -> int:
        return len(self.inputs)

    def slopes(self, outputs: Float[Tensor, " j"]) -> Float[Tensor, " j"]:
        """ℓ'(f_i, y_i)."""
        assert self.labels is not None, "asked where labels are known"
        labels = self.labels.to(outputs)
        if self.loss == "square":
            return outputs - labels
        return -labels * torch.sigmoid(-labels * outputs)


def save_known(known: Known, path: Path) -> None:
    tensors = {"inputs": known.inputs} | ({} if known.labels is None else {"labels": known.labels})
    meta = {"loss": known.loss, "penalty": known.penalty, "intercept": known.intercept}
    write_tensors(path, KIND, tensors, meta)


def load_known(path: Path, d: int) -> Known:
    """Samples of dimension d that somebody wrote with `save_known`."""
    file = read_tensors(path, KIND)
    require_tensors(file, path, "inputs")
    inputs, labels = file.tensors["inputs"], file.tensors.get("labels")
    if inputs.ndim != 2 or inputs.shape[1] != d or not inputs.is_floating_point() or not inputs.isfinite().all():
        raise ExhumeError(f"expected finite samples of dimension {d} in {path}, found shape {list(inputs.shape)}")
    if labels is not None and not (labels.ndim == 1 and labels.is_floating_point() and labels.isfinite().all()):
        raise ExhumeError(f"expected finite labels in {path}, found others")
    try:
        loss, penalty, intercept = (file.meta[name] for name in ("loss", "penalty", "intercept"))
    except KeyError as problem:
        raise ExhumeError(f"expected loss, penalty and intercept in {path}, found no {problem}") from problem
    understood = loss in (None, *get_args(KnownLoss)) and type(penalty) in (type(None), float)
    if not understood or type(intercept) is not bool:
        raise ExhumeError(f"expected a known loss and a penalty in {path}, found {loss!r} and {penalty!r}")
    try:
        return Known(inputs, labels, loss, penalty, intercept)
    except UsageError as problem:  # the file is at fault, not the request
        raise ExhumeError(f"expected known samples in {path}, found them damaged: {problem}") from problem
