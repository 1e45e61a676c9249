"""What every case of attack has in common: the means it may use, and the judgement it ends with."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.ranks import ALONE, Ranks
from exhume.reconstruction import Certificate

Facts = dict[str, Any]
"""What a case found out about the victim before the attack began: keys of the summary."""


@dataclass(frozen=True)
class Means:
    """Memory for V on each rank (None: half of the machine's), precisions, and where to compute."""

    memory_bytes: int | None
    dtype: torch.dtype
    products: torch.dtype
    device: torch.device
    ranks: Ranks = ALONE


@dataclass(frozen=True, eq=False)
class Judgement:
    """The published loss of candidates on all weights of the attack, and what unseen weights say of them.

    `facts` are further keys of the summary that only the result could tell.
    """

    loss: float
    coefficients: Float[Tensor, "m k"]
    certificate: Certificate
    facts: Facts = field(default_factory=dict)
