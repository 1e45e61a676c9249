"""What products with H tell of H⁻¹, where there are too many unknowns for its factors.

tr [H⁻¹]_ii is the mean of z_i · (H⁻¹ z)_i over random signs z. Each is a system in H, solved by conjugate gradients.
Signs have about as much in every direction. So no direction hides in what is left of z once its conditioned square has
fallen to a hundredth of one direction's share: directions that are seen too faintly to have been solved for keep all of
their own. Where it does not fall so far within `PRODUCTS`, there may be such directions, and nothing is known.

Each probe errs by about sqrt(2 / d): one is enough in many dimensions.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import conjugate_gradients

PRODUCTS = 150  # random rows settle within 20; networks of 400 numbers with 1,200 units in 120, with 440 not in 400
HIDDEN = 1e-2  # of one direction's share: a probe has less in a given one 8 times in 100, in those of 2 candidates once

Product = Callable[[Float[Tensor, "m d"]], Float[Tensor, "m d"]]


def solve(curve: Product, wanted: Float[Tensor, "m d"], condition: Product) -> tuple[Float[Tensor, "m d"], bool]:
    """H⁻¹ wanted, and whether no direction can hide in what is left of it."""
    found = conjugate_gradients(curve, wanted, PRODUCTS, HIDDEN / wanted.numel(), condition)
    return found.x, found.settled


def traces(
    curve: Product, condition: Product, allowed: Product, like: Float[Tensor, "m d"], probes: int = 1
) -> Float[Tensor, " m"]:
    """tr [H⁻¹]_ii over the directions that are allowed; infinite where they are not known."""
    stream = torch.Generator().manual_seed(0)
    total = torch.zeros(len(like), dtype=torch.float64, device=like.device)
    for _ in range(probes):
        signs = allowed(torch.randint(0, 2, like.shape, generator=stream).to(like) * 2 - 1)
        solved, settled = solve(curve, signs, condition)
        if not settled:
            return torch.full_like(total, torch.inf)
        total = total + (signs * solved).double().sum(dim=1) / probes
    return total.abs()
