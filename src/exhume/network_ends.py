"""A whole network before and after training: what attacks that replay its training start from and aim at."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True, eq=False, repr=False)
class NetworkEnds:
    """Both are modules of the same form, in evaluation mode."""

    started: nn.Module
    trained: nn.Module

    @property
    def start(self) -> Float[Tensor, " p"]:
        return flat_parameters(self.started)

    @property
    def end(self) -> Float[Tensor, " p"]:
        return flat_parameters(self.trained)


def flat_parameters(module: nn.Module) -> Float[Tensor, " p"]:
    """All parameters in the order of the module."""
    return torch.cat([value.detach().reshape(-1) for value in module.parameters()])
