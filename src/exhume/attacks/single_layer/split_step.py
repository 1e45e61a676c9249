"""The split step: a Gauss-Newton step that touches V no more than a gradient step does, and its momentum.

The step is split by S = span of the rows of X̂:

- *across S* (d − m dimensions) the preactivations of the rows of V are independent of Z, so H is M ⊗ I there up to
  sampling: dX_⊥ = M⁻¹ G_⊥, one m × m solve;
- *inside S* (m dimensions), with an orthonormal basis Q, the coordinates u_k = Qᵀ v_k equal (X̂Q)⁺ (z_k − b_k): **V is
  not touched**.
  (C, dα), m·m + m·k unknowns, come from conjugate gradients on the normal equations; a product costs p m² instead of
  p m d, and a subset of about 5 m² rows is enough for the curvature.

One iteration is one forward and one backward pass.

*Momentum.* Near the solution the error of a plain step is I − M⁻¹H, and the spectrum of M⁻¹H fills Marchenko-Pastur's
interval [(1 − √q)², (1 + √q)²], q = m d / (p e), where e is the number of equations of a row of V that differ. For that
interval Polyak's optimal heavy ball has step 1 and momentum q exactly, and converges like (√q)^t instead of
(2√q / (1 + q))^t, at no extra pass. Far from the solution the landscape decides, not this spectrum; there a momentum of
3/4 needs fewer passes than q.

*Several outputs.* Row v contributes (D A)(D A)ᵀ ⊗ v vᵀ with D the slopes of the m candidates there and A (m × k) their
coefficients: of rank e = k at most, and not above the number of candidates that are active in that row. With one class
a sample (k = m) and ReLU that is m / 2. Were e taken for k, q would be too small by half, the upper end of the spectrum
outside of what the heavy ball bears, and convergence slow.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import Stacked, conjugate_gradients
from exhume.attacks.foundation.levenberg import Move
from exhume.attacks.single_layer.gauss_newton import Model
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features import memory

CURVATURE_ROWS = 5  # times m²
ACTIVITY_ROWS = 4096
INNER_PRODUCTS = 30
INNER_TOLERANCE = 1e-3
FAR_LOSS, FAR_MOMENTUM = 1e-3, 0.75


def split_move(loss: SpanLoss, model: Model, damping: float, velocity: Float[Tensor, "m d"] | None = None) -> Move:
    """The split step from a model, plus momentum times the last change of the candidates where there is one."""
    candidates, descent = model.fit.candidates, model.descent
    m, d = candidates.shape
    inverse = model.damped_metric_inverse(damping).to(descent.dtype)
    whole_space = torch.eye(d, dtype=descent.dtype, device=descent.device)
    basis = whole_space if m >= d else _span(candidates)
    inside = _solve_inside(loss, model, damping, inverse, basis) @ basis.T
    across = inverse @ (descent - (descent @ basis) @ basis.T)
    change = loss.allowed(inside + across, candidates)
    if velocity is not None:
        q = m * d / (loss.p * equations_a_row(loss, model))
        change = change + momentum(model.fit.loss, q) * loss.allowed(velocity, candidates)
    # with M⁻¹H near the identity the step gains about what its first order promises
    return Move(change, float((descent * change).sum()) / model.energy)


def equations_a_row(loss: SpanLoss, model: Model) -> float:
    """e: as many as there are outputs, but in each row no more than candidates that are active there; on average.

    How many are active is the participation ratio of their squared slopes, which for ReLU is their number.
    """
    if loss.outputs == 1:
        return 1.0
    squares = model.slopes[:, : loss.ranks.share.count(ACTIVITY_ROWS)].double().square()
    active = squares.sum(dim=0).square() / squares.square().sum(dim=0).clamp_min(torch.finfo(squares.dtype).tiny)
    distinct = active.clamp(1.0, loss.outputs).sum()
    totals = loss.ranks.sum(torch.stack([distinct, distinct.new_tensor(float(len(active)))]))
    return float(totals[0] / totals[1])


def momentum(loss: float, q: float) -> float:
    """q near the solution, 3/4 far from it; the larger of the two while on the way, never above 0.9."""
    return min(max(q, FAR_MOMENTUM) if loss > FAR_LOSS else q, 0.9)


def _solve_inside(
    loss: SpanLoss, model: Model, damping: float, inverse: Float[Tensor, "m m"], basis: Float[Tensor, "d s"]
) -> Float[Tensor, "m s"]:
    """C with dX = C Qᵀ inside S, by preconditioned conjugate gradients over (C, dα) on a subset of the rows."""
    fit, dtype = model.fit, model.descent.dtype
    m, rows = len(fit.candidates), min(loss.p, CURVATURE_ROWS * len(fit.candidates) ** 2)
    own = loss.ranks.share.count(rows)
    coordinates = _coordinates(loss, model, basis, rows)
    weights, slopes, features = fit.coefficients.to(dtype), model.slopes[:, :own], fit.features[:, :own]
    scale = loss.p / rows
    damped = (damping * model.curvatures).to(dtype)[:, None]
    gram_inverse = fit.gram_inverse.to(dtype)
    places = fit.candidates @ basis  # norms are kept: only moves across each candidate count, inside S as well

    values = memory.empty(m, own, coordinates)  # one matrix for all products: fresh ones would cost as much as they do

    def times(step: _Inside) -> _Inside:
        torch.mm(step.inner, coordinates, out=values).mul_(slopes)
        moved = weights.T @ values + step.change.T @ features
        torch.mm(weights, moved, out=values).mul_(slopes)
        pulled, onto = loss.ranks.sum(values @ coordinates.T), loss.ranks.sum(features @ moved.T)
        return _Inside(loss.allowed(scale * pulled + damped * step.inner, places), scale * onto)

    def conditioned(left: _Inside) -> _Inside:
        return _Inside(loss.allowed(inverse @ left.inner, places), gram_inverse @ left.change)

    wanted = _Inside(model.descent @ basis, torch.zeros_like(weights))
    return conjugate_gradients(times, wanted, INNER_PRODUCTS, INNER_TOLERANCE, conditioned).x.inner


@dataclass(frozen=True, eq=False, repr=False)
class _Inside(Stacked):
    """C, and the change of the coefficients that goes with it."""

    inner: Float[Tensor, "m s"]
    change: Float[Tensor, "m k"]


def _span(candidates: Float[Tensor, "m d"]) -> Float[Tensor, "d s"]:
    """An orthonormal basis of S; candidates that coincide count once."""
    _, sizes, directions = torch.linalg.svd(candidates, full_matrices=False)
    return directions[sizes > 8 * len(sizes) * torch.finfo(sizes.dtype).eps * sizes[0]].T


def _coordinates(loss: SpanLoss, model: Model, basis: Float[Tensor, "d s"], rows: int) -> Float[Tensor, "s own"]:
    """u_k = Qᵀ v_k for the first rows: from Z where S is smaller than the space, from V itself where it is not."""
    own = loss.ranks.share.count(rows)
    if basis.shape[0] == basis.shape[1]:
        loss.counter.total += rows / loss.counter.all_rows
        return loss.features.part(0, own).products(basis.T)
    preactivations = model.fit.preactivations[:, :own]
    if loss.features.bias is not None:
        preactivations = preactivations - loss.features.bias[:own].to(preactivations)
    return torch.linalg.pinv(model.fit.candidates @ basis) @ preactivations
