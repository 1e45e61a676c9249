"""The error to expect of candidates, from the Jacobian of the network that they went through.

With θ ≈ AᵀG, g the network up to its last layer and J_i its Jacobian at candidate i, what `single_layer/linearised.py`
says of rows of V holds of a network: H = Jᵀ P J with J made of A_i J_i, and

    E ||x̂_i − x_i||² = σ² tr [H⁻¹]_ii + ||dx_i||²,      dx = H⁻¹ Jᵀ P θ.

A mean over directions would not see that a layer on the way is blind to some of them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.projection import Projection
from exhume.attacks.foundation.unknowns import DENSE, TINY, factors, turned_outputs, unknown_directions
from exhume.attacks.modules.span import GeneralSpanLoss

MOST_NUMBERS = 2**21  # of J: with its factors some 80 MiB, which the plan of a budget of memory has to spare


def expected_squares(
    loss: GeneralSpanLoss, fit: Projection, noise: float, free_norms: bool
) -> Float[Tensor, " m"] | None:
    """The squared error of each candidate over its squared norm, for noise of variance σ² on each weight.

    None where there are too many unknowns for it.
    """
    (m, d), r = fit.candidates.shape, loss.outputs
    if m * d > DENSE or m * d * r * loss.features.p > MOST_NUMBERS or d == 1:  # where a sign alone may be open
        return None
    candidates = fit.candidates.double()
    bases = unknown_directions(candidates, free_norms)
    amplitudes, turned = turned_outputs(fit.coefficients, r)
    point = loss.features.linearise(fit.candidates)
    moved = [point.push(bases[:, :, u].to(fit.candidates)).double() for u in range(bases.shape[2])]
    columns = torch.stack(moved, dim=1).flatten(0, 1).T  # of each candidate all its directions, one after the other
    values = fit.features.double()
    spanned = torch.linalg.qr((values / values.norm(dim=1, keepdim=True).clamp_min(TINY)).T).Q
    for _ in range(2):
        columns = columns - spanned @ (spanned.T @ columns)
    tangents = torch.cat([columns * amplitudes[:, o].repeat_interleave(bases.shape[2]) for o in range(r)])
    inverse, seen = factors(tangents)
    steps = (inverse @ (seen.T @ (turned.T @ fit.residual.double()).flatten())).reshape(m, -1).square().sum(dim=1)
    variances = inverse.reshape(m, bases.shape[2], -1).square().sum(dim=(1, 2))
    each = noise * len(fit.residual) / r  # outputs that repeat each other miss the same
    return (each * variances + steps) / candidates.square().sum(dim=1).clamp_min(TINY)
