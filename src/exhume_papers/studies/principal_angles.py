"""The angles between two subspaces, accurate where they are small.

For orthonormal bases A and B the cosines are the singular values of AᵀB. Close to 1 they say nothing: an angle of 1e-9
has the cosine 1 in double precision. The sines, singular values of B − A Aᵀ B, do; so each angle comes from the smaller
of the two.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def principal_angles(first: Float[Tensor, "d r"], second: Float[Tensor, "d s"]) -> Float[Tensor, " s"]:
    """The angles in radians between the span of the second columns and that of the first, largest first.

    There are s of them: a direction of the second that the first has no room for (s > r) is at a right angle.
    """
    one, two = (torch.linalg.qr(columns.double()).Q for columns in (first, second))
    inside = one.T @ two
    sines = torch.linalg.svdvals(two - one @ inside).clamp(max=1)
    cosines = torch.zeros_like(sines)
    found = torch.linalg.svdvals(inside).clamp(max=1)
    cosines[: len(found)] = found
    cosines = cosines.flip(0)  # ascending: the largest angle first, as the sines are
    return torch.where(sines < cosines, torch.asin(sines), torch.acos(cosines))
