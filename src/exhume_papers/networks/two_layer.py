"""f(x) = W₂ φ(W₁ x) as a module, for recipes that need every weight (Adam) and as the twin of the fast iteration."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class TwoLayer(nn.Module):
    """Two bias-free layers that start at the given weights."""

    def __init__(
        self,
        first: Float[Tensor, "h d"],
        head: Float[Tensor, "k h"],
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.first = _linear(first)
        self.head = _linear(head)

    def forward(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        return self.head(self.activation(self.first(rows)))


def _linear(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")  # no memory for a first draw
    layer.weight = nn.Parameter(weight.detach().clone())
    return layer
