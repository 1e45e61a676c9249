"""All samples together: from duals to places, and from there to exact duals again.

With all r duals, Z = Q⁻¹ gives every sample, with its norm. With m < r of them, sample i is orthogonal to the other
duals, which leaves it r − m + 1 numbers: they are fitted to the pattern of its silent units. The last sample of a
complete set needs no dual of its own: it is what is orthogonal to all others.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.silent.duals import annealed_duals, unit_rows
from exhume.attacks.silent.evidence import zeros_of
from exhume.attacks.silent.grams import solve_positive, weighted_grams
from exhume.attacks.silent.placing import Placing, complement, logistic_step
from exhume.attacks.silent.span import Span, batches
from exhume.layer_states import FAINT

POLISHES = 2
NEWTON_STEPS = 25
FIT_RIDGE = 1e-4  # of a unit's information on a direction: enough to keep what no unit tells from running away


def completed(span: Span, duals: Float[Tensor, "m r"]) -> Float[Tensor, "more r"]:
    """With one sample missing, its place is known, and its dual follows from there."""
    if len(duals) != span.r - 1:
        return duals
    basis = complement(duals)
    point = span.facing(basis.T)
    last = annealed_duals(span, point, point, basis, Placing.inside(span, basis).ridge)
    return torch.cat([duals, last.duals])


def polished(span: Span, duals: Float[Tensor, "m r"]) -> tuple[Float[Tensor, "m r"], Float[Tensor, "m r"]]:
    """Duals and places: each dual from all its zeros by least squares, each place from all other duals, in turns."""
    points = places(span, duals)
    for _ in range(POLISHES if span.leak <= FAINT else 0):
        duals = refitted(span, duals, points)
        points = places(span, duals)
    return duals, points


def refitted(span: Span, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    return torch.cat([_from_zeros(span, duals[part], points[part]) for part in batches(span, len(duals))])


def places(span: Span, duals: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    """Row i is orthogonal to all duals but the i-th; what that leaves open is fitted to the silent units."""
    if not len(duals):
        return duals
    own, open_basis = orthogonal_to_others(duals)
    if len(duals) == span.r:
        return span.facing(own)
    zeros = zeros_of(span, duals).to(span.rows)
    fitted = [_fitted(span, zeros[i : i + 1], torch.cat([open_basis, own[i][:, None]], dim=1)) for i in range(len(own))]
    return span.facing(torch.cat(fitted))


def orthogonal_to_others(duals: Float[Tensor, "m r"]) -> tuple[Float[Tensor, "m r"], Float[Tensor, "r f"]]:
    """Sample i lies in the span of row i and of the basis: orthogonal to all duals but its own."""
    return unit_rows(torch.linalg.pinv(duals).T), complement(duals)


def _fitted(span: Span, zeros: Float[Tensor, "1 u"], basis: Float[Tensor, "r f"]) -> Float[Tensor, "1 r"]:
    """Logistic regression of the zeros inside the basis, from least squares.

    Directions count by what the units see of them, not by their length: some are seen a thousand times less.
    """
    basis = basis / (span.mean_end @ basis).square().mean(dim=0).sqrt().clamp_min(torch.finfo(basis.dtype).tiny)
    ends, mean = tuple(end @ basis for end in span.ends), span.mean_end @ basis
    ridge, fires = FIT_RIDGE * span.h, 1 - zeros
    damped = mean.T @ mean + ridge * torch.eye(basis.shape[1], dtype=basis.dtype, device=basis.device)
    point = torch.linalg.solve(damped, ((fires - fires.mean()) @ mean)[0])[None]
    point = 3 * point / (point @ ends[-1].T).abs().median().clamp_min(torch.finfo(point.dtype).tiny)
    for _ in range(NEWTON_STEPS):
        point = logistic_step(ends, point, zeros, ridge)
    return point @ basis.T


def _from_zeros(span: Span, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    """The direction that the rows with zeros see least; a dual with too few zeros to tell stays as it is."""
    zeros = zeros_of(span, duals).to(span.rows)
    solved = unit_rows(solve_positive(weighted_grams(span.rows, zeros), points, 1e-14))
    return torch.where((zeros.sum(dim=1, keepdim=True) >= span.r), solved, duals)
