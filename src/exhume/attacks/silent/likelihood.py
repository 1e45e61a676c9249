"""All samples at once: the likelihood of a whole set of duals, by its silent units and by its pictures.

For an invertible Q (columns: duals) the columns of C = Y Q and the places Z = Q⁻¹ are known, so that

    − log L(Q) = − Σ_ki log( π_ki N(c_ki; 0, ε²) + (1 − π_ki) N(c_ki; 0, s²) ) − h log |det Q|
                 + λ ( edges of the pictures Z, as in `separation.py` ),

with columns of C at mean square 1 and π_ki the probability that unit k never fired on sample i, by its depth at z_i
(`duals.py` has both). The determinant keeps duals from falling together. ε falls step by step, and L-BFGS follows, in
coordinates relative to the present Q. The zeros alone do not carry this where units are few (h = 5 n: from the truth
itself it drifts off), the pictures alone end at ten per cent: together they end at one to three per cent.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.silent.duals import SLAB, zero_odds
from exhume.attacks.silent.separation import sparseness
from exhume.attacks.silent.span import Span

PICTURES = 0.6  # λ: neighbouring places repeat each other; 0.3 does a little worse at h = 5 n
WIDEST, NARROWS, LEVELS = 0.5, 0.7, 14  # ε, its ratio, and how many
AGAIN = 0.1  # ε to begin with for a set that has been through this before
STEPS = 20  # of L-BFGS per level


def likeliest(
    span: Span,
    duals: Float[Tensor, "r r"],
    edges: Float[Tensor, "r k p"],
    settled: Bool[Tensor, " r"],
    widest: float = WIDEST,
) -> Float[Tensor, "r r"]:
    """Duals as rows, from a whole set of them; those that are settled stay as they are. `widest`: ε to begin with."""
    moves = (~settled).to(span.rows)
    eye = torch.eye(span.r, dtype=span.rows.dtype, device=span.rows.device)
    columns = _sized(span, duals.T)
    for level in range(LEVELS):
        width = max(widest * NARROWS**level, span.leak)
        change = torch.zeros_like(eye, requires_grad=True)
        optimiser = torch.optim.LBFGS([change], max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe")

        def loss(base: Tensor = columns, change: Tensor = change, width: float = width) -> Float[Tensor, ""]:
            with torch.enable_grad():
                value = minus_log_likelihood(span, base @ (eye + change * moves), edges, width)
                change.grad = torch.autograd.grad(value, change)[0].contiguous()
            return value.detach()

        optimiser.step(loss)
        fresh = (columns @ (eye + change * moves)).detach()
        if not bool(torch.isfinite(fresh).all()):
            break
        columns = _sized(span, fresh)
        if width == span.leak:
            break
    return (columns / columns.norm(dim=0)).T


def minus_log_likelihood(
    span: Span, columns: Float[Tensor, "r r"], edges: Float[Tensor, "r k p"], width: float
) -> Float[Tensor, ""]:
    points = torch.linalg.inv(columns)
    entries = span.rows @ columns
    size = entries.square().mean(dim=0).sqrt()
    entries = (entries / size).T
    odds = zero_odds(span, span.facing(points))
    zero = torch.nn.functional.logsigmoid(odds).clamp_min(-12) - 0.5 * (entries / width).square() - math.log(width)
    fires = torch.nn.functional.logsigmoid(-odds).clamp_min(-7) - 0.5 * entries.square() / SLAB - 0.5 * math.log(SLAB)
    value = -torch.logaddexp(zero, fires).sum() - span.h * torch.linalg.slogdet(columns / size)[1]
    flat = edges.flatten(1)
    sparse, scale = sparseness(points @ flat, edges.shape[1])
    return value + PICTURES * (sparse - flat.shape[1] * torch.linalg.slogdet(points / scale)[1])


def _sized(span: Span, columns: Float[Tensor, "r r"]) -> Float[Tensor, "r r"]:
    return columns / (span.rows @ columns).square().mean(dim=0).sqrt()
