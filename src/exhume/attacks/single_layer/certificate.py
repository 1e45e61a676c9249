"""The certificate of candidates for features φ(Vx + b): their curvature, and what of them the weights can tell.

To what every certificate asks (`foundation/certificate.py`) this adds one question. The confidence of a candidate is
zero where its features are a quadratic function of its preactivations but for what is left: such weights show Σ α_i x_i
and Σ α_i x_i x_iᵀ, and no single x_i.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import EXPLAINED, RowSplit, Unexplained, outcome_of, unjudged, verdict
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.attacks.single_layer.gauss_newton import linearise, metric, newton_move
from exhume.attacks.single_layer.pruning import removal_costs
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.observation import Observation
from exhume.reconstruction import Certificate

SETTLING_DAMPING = 1e-6
TELLING = 10.0  # how far above what is left that must be which tells samples apart, summed over its equations
SETTLING_PRODUCTS, FEW_DIMENSIONS = 10, 256  # products for the Newton step; up to so many dimensions they are cheap


def loss_on(
    observation: Observation,
    start: int,
    count: int,
    candidates: Float[Tensor, "m d"],
    coefficients: Float[Tensor, "m k"],
    ranks: Ranks = ALONE,
) -> float | None:
    """||θ_h − αᵀF_h||² / ||θ_h||² on rows that the attack did not fit; None where there are none."""
    weights = observation.weights[:, start : start + count]
    if count == 0 or not torch.any(weights):
        return None
    features, weights = ranks.share.of(observation.ridge.part(start, start + count)), ranks.share.columns(weights)
    loss = SpanLoss(features, weights, candidates.dtype, candidates.device, ranks)
    return loss.predict_loss(candidates, coefficients)


def certify(
    loss: SpanLoss,
    fit: Fit,
    unseen_loss: float | None,
    split: RowSplit,
    weights: Float[Tensor, "k p"],
    spread: float = 1.0,
    drifted: bool = False,
) -> Certificate:
    """The outcome and each candidate's confidence, from the weights alone (`weights`: as they were published).

    `drifted`: the features moved in training, so that a rest that looks like noise may be noise.
    `spread` multiplies squared errors: r / d where candidates are known to lie in r of the d dimensions, since they can
    err in no others; the mean of λ̄ / λ_j where the rows of V see directions unequally (eigenvalues λ of VᵀV).
    """
    if unseen_loss is None:
        return unjudged(len(fit.candidates), split.held_out)
    m, d = fit.candidates.shape
    left = Unexplained(
        fit.loss, unseen_loss, split.held_out * loss.outputs, m * (d - 1 + loss.outputs) / loss.equations
    )
    explained = removal_costs(fit, loss)
    found = verdict(metric(loss, fit) / spread, explained, left, split.held_out, weights, drifted, unsettled(loss, fit))
    telling = beyond_quadratic(loss, fit).cpu() * explained.cpu() * loss.equations / d
    blind = telling <= TELLING * max(unseen_loss, EXPLAINED)
    if not bool(blind.any()):
        return found
    confidence = torch.tensor(found.confidence).where(~blind, 0.0)
    return replace(found, outcome=outcome_of(left, False, confidence), confidence=tuple(confidence.tolist()))


def unsettled(loss: SpanLoss, fit: Fit) -> Float[Tensor, " m"]:
    """||step_i||² / d of the Newton step at a fit: how far candidates would still move. A few passes."""
    d = fit.candidates.shape[1]
    products = SETTLING_PRODUCTS if d <= FEW_DIMENSIONS else 2
    step = newton_move(loss, linearise(loss, fit), SETTLING_DAMPING, products, 0.1).change
    return step.double().square().sum(dim=1) / d


def beyond_quadratic(loss: SpanLoss, fit: Fit) -> Float[Tensor, " m"]:
    """The share of each candidate's features that is no quadratic function of its preactivations."""
    shares = []
    for preactivations, features in zip(fit.preactivations, fit.features, strict=True):
        z, f = preactivations.double(), features.double()
        known = torch.stack([torch.ones_like(z), z, z.square(), f])
        gram = loss.ranks.sum(known @ known.T)
        scale = gram.diagonal().clamp_min(torch.finfo(torch.float64).tiny).rsqrt()
        gram = gram * scale[:, None] * scale
        fitted = gram[3, :3] @ torch.linalg.pinv(gram[:3, :3], rtol=1e-12, hermitian=True) @ gram[:3, 3]
        shares.append((1 - fitted).clamp_min(0))
    return torch.stack(shares)
