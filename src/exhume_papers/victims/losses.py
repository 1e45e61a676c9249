"""The losses that networks are trained with.

All are means over the n samples, as torch has them, of outputs F (n × k) and targets Y (n × k):

- square:         (1/nk) Σ_ij (F_ij − Y_ij)², one-hot targets, or the labels themselves for one output;
- logistic:       (1/n) Σ_i log(1 + exp(−y_i f_i)), one output, labels −1 and +1;
- cross-entropy:  −(1/n) Σ_i log softmax(F_i)_{class i}, one-hot targets.

A sum over the samples (the logistic loss of the paper) has the same minimisers, and the same iterates at a step size
that is n times smaller.

Each loss also knows its curvature in the outputs, H = R Rᵀ (nk × nk): with the Jacobian J of the outputs in the
weights, Jᵀ H J is the Gauss-Newton matrix, and it shares its largest eigenvalue with Rᵀ J Jᵀ R.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from exhume.errors import UsageError

LossName = Literal["square", "logistic", "cross-entropy"]


@runtime_checkable
class OfOutputs(Protocol):
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor: ...


@runtime_checkable
class Root(Protocol):
    def __call__(self, outputs: Tensor, vector: Tensor, transposed: bool) -> Tensor: ...


@dataclass(frozen=True)
class Loss:
    """A loss, its gradient in the outputs, and the product with R or Rᵀ."""

    name: LossName
    value: OfOutputs
    gradient: OfOutputs
    root: Root
    until: float
    """Training ends here unless told otherwise: a square loss is fitted, the others only ever approach zero."""


def _square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.double() - targets.double()).square().mean()


def _square_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets) * (2 / outputs.numel())


def _square_root(outputs: Tensor, vector: Tensor, transposed: bool) -> Tensor:
    return vector * math.sqrt(2 / outputs.numel())


def _logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    return -torch.nn.functional.logsigmoid(outputs.double() * targets.double()).mean()


def _logistic_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    return -targets * torch.sigmoid(-targets * outputs) / len(outputs)


def _logistic_root(outputs: Tensor, vector: Tensor, transposed: bool) -> Tensor:
    return vector * (torch.sigmoid(outputs) * torch.sigmoid(-outputs) / len(outputs)).sqrt()


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(targets.double() * torch.log_softmax(outputs.double(), dim=1)).sum(dim=1).mean()


def _cross_entropy_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    return (torch.softmax(outputs, dim=1) - targets) / len(outputs)


def _cross_entropy_root(outputs: Tensor, vector: Tensor, transposed: bool) -> Tensor:
    """R = diag(√q) − q √qᵀ for each sample, because R Rᵀ = diag(q) − q qᵀ when the probabilities q add up to 1."""
    q = torch.softmax(outputs, dim=1)
    outer, inner = (q.sqrt(), q) if transposed else (q, q.sqrt())
    product = q.sqrt() * vector - outer * (inner * vector).sum(dim=1, keepdim=True)
    return product / math.sqrt(len(outputs))


_MEMBERS = (
    Loss("square", _square, _square_gradient, _square_root, until=1e-9),
    Loss("logistic", _logistic, _logistic_gradient, _logistic_root, until=1e-3),
    Loss("cross-entropy", _cross_entropy, _cross_entropy_gradient, _cross_entropy_root, until=1e-3),
)

LOSSES: Mapping[str, Loss] = MappingProxyType({member.name: member for member in _MEMBERS})


def loss_named(name: str) -> Loss:
    if name not in LOSSES:
        raise UsageError(f"expected a loss out of {', '.join(LOSSES)}; found {name!r}")
    return LOSSES[name]
