"""Products with a Jacobian from the right: how a function's value moves when its argument does."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from exhume.networks.attention import differentiable_attention


def push_forward(function: Callable[[Any], Tensor], point: Any, direction: Any) -> Tensor:
    """J·direction at a point (a tensor or a dictionary of tensors): torch.func.jvp, with attention that allows it."""
    load_forward_derivatives()
    with differentiable_attention():
        return torch.func.jvp(function, (point,), (direction,))[1]


@cache
def load_forward_derivatives() -> None:
    """torch compiles some forward derivatives on first use, with a part of its own that it calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(1), torch.ones(1))
