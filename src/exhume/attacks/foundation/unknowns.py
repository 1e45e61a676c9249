"""The unknowns of equations that were linearised, and what the equations determine of them.

P J, the equations with their coefficients projected out, is taken apart by QR in unit columns: H⁻¹ = (Jᵀ P J)⁻¹ is
R⁻¹ R⁻ᵀ, and directions that no equation sees are large in it. `single_layer/linearised.py` has J for rows of V,
`modules/linearised.py` for a network. There H itself is gathered, which resolves less: its eigenvalues are squares.
"""

import torch
from jaxtyping import Float
from torch import Tensor

DENSE = 1200  # unknowns whose factors take seconds
UNSEEN = 1e-10  # of its column: what stands for a singular value of zero, far below what any noise resolves
ROUNDED = 1e-12  # an eigenvalue of H in unit columns that gradients in single precision may make up
LEAST_SCALE = 1e-100  # of a column, where a candidate leaves no trace at all
TINY = torch.finfo(torch.float64).tiny


def factors(tangents: Float[Tensor, "rp c"]) -> tuple[Float[Tensor, "c c"], Float[Tensor, "rp c"]]:
    """R⁻¹ with the scales of the columns, and Q."""
    scale = tangents.norm(dim=0)
    scale = scale.clamp_min(max(UNSEEN * float(scale.max()), LEAST_SCALE))
    eye = torch.eye(len(scale)).to(tangents)
    found = torch.linalg.qr(torch.cat([tangents / scale, UNSEEN * eye]))
    return torch.linalg.solve_triangular(found.R, eye, upper=True) / scale[:, None], found.Q[: len(tangents)]


def inverse_curvature(curvature: Float[Tensor, "c c"]) -> Float[Tensor, "c c"]:
    """H⁻¹, with what rounding may have made of a direction that no equation sees beyond all bounds."""
    scale = curvature.diagonal()
    scale = scale.clamp_min(max(UNSEEN**2 * float(scale.max()), LEAST_SCALE)).rsqrt()
    values, vectors = torch.linalg.eigh(curvature * scale[:, None] * scale)
    values = values.where(values > ROUNDED, UNSEEN**2)
    return (vectors / values) @ vectors.T * scale[:, None] * scale


def unknown_directions(candidates: Float[Tensor, "m d"], free_norm: bool) -> Float[Tensor, "m d u"]:
    """An orthonormal basis of what may change in each candidate: all directions, or those at its norm."""
    m, d = candidates.shape
    eye = torch.eye(d).to(candidates).expand(m, d, d)
    if free_norm:
        return eye
    units = candidates / candidates.norm(dim=1, keepdim=True).clamp_min(TINY)
    first = torch.where(units[:, :1] < 0, -1.0, 1.0)
    mirror = units + first * eye[:, 0]  # Householder's, which takes x to a multiple of the first axis
    return (eye - 2 * mirror[:, :, None] * mirror[:, None] / mirror.square().sum(dim=1)[:, None, None])[:, :, 1:]


def turned_outputs(
    coefficients: Float[Tensor, "m k"], outputs: int
) -> tuple[Float[Tensor, "m r"], Float[Tensor, "k r"]]:
    """A in the r directions of the outputs in which it is not negligible, and these directions."""
    turned = torch.linalg.eigh(coefficients.T @ coefficients).eigenvectors[:, -outputs:]
    return coefficients @ turned, turned
