"""What every case of attack has in common: the means it may use, and the judgement it ends with."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.reconstruction import Certificate


@dataclass(frozen=True)
class Means:
    """Memory for V (None: half of the machine's), precisions, and where to compute."""

    memory_bytes: int | None
    dtype: torch.dtype
    products: torch.dtype
    device: torch.device


@dataclass(frozen=True, eq=False)
class Judgement:
    """The published loss of candidates on all weights of the attack, and what unseen weights say of them."""

    loss: float
    coefficients: Float[Tensor, "m k"]
    certificate: Certificate
