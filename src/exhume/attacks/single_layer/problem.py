"""What a method of attack on features φ(Vx + b) is given."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.attacks.single_layer.span import SpanLoss


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """The projected loss on the rows that the attack may use, and what the attacker knows besides.

    `coarse` is the same loss with V in bfloat16 where products in it were asked for, otherwise `loss` itself.
    `steering_loss(candidates, coefficients)` is their loss on weights that are not fitted and not those of the verdict
    either: to choose between results; coefficients that are not given are fitted. None where there are no such rows.
    `rounding` is the mean square of the rounding error that the published weights show, over their own. `drifts`: the
    features are known to have moved during training, so that the weights are only nearly in their span, and further
    candidates go on to explain a little more. `start`: candidates that were found elsewhere, to begin with. There are
    `at_least` so many samples. `at_most` so many candidates fit into memory. `timed`: a limit of time ends
    the search.
    """

    loss: SpanLoss
    coarse: SpanLoss
    norm: float
    samples: int | None
    seed: int
    steering_loss: "Steering"
    rounding: float
    dtype: torch.dtype
    device: torch.device
    drifts: bool = False
    start: Float[Tensor, "m d"] | None = None
    at_least: int = 1
    at_most: int | None = None
    timed: bool = False

    @property
    def drifted(self) -> bool:
        """Whether the features may have moved while the weights were trained."""
        return self.drifts or self.loss.features.trained

    def generator(self, stream: int = 0) -> torch.Generator:
        """Random numbers for the attack's start; further streams (restarts) are independent of the first."""
        return seeds.start_of(self.seed, stream)


@runtime_checkable
class Steering(Protocol):
    def __call__(
        self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"] | None = None
    ) -> float | None: ...
