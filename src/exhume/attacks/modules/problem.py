"""What the attack on a general feature map is given."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume import seeds
from exhume.attacks.modules.affine_span import AffineSpan
from exhume.attacks.modules.span import GeneralSpanLoss


@dataclass(frozen=True, eq=False)
class ModuleProblem:
    """The loss on the coordinates that the attack may use, and what the attacker knows besides.

    `norm` is that of every sample, None where norms are free. `image_shape` (channels, height, width) lets the search
    prefer smooth pictures. `steering_loss(candidates)` is their loss on weights that are neither fitted nor those of
    the verdict; None where there are none. `at_most` candidates fit into memory. `span`: an affine space that all
    samples lie in, where a layer shows one.
    """

    loss: GeneralSpanLoss
    norm: float | None
    samples: int | None
    seed: int
    steering_loss: Callable[[Tensor], float | None]
    dtype: torch.dtype
    device: torch.device
    image_shape: tuple[int, int, int] | None = None
    at_most: int | None = None
    span: AffineSpan | None = None

    def generator(self, stream: int = 0) -> torch.Generator:
        """Random numbers for starts; further streams are independent of the first."""
        return seeds.start_of(self.seed, stream)
