"""The certificate of candidates for features φ(Vx + b): their curvature, and what of them the weights can tell.

To what every certificate asks (`foundation/certificate.py`) this adds one question. The confidence of a candidate is
zero where its features are a quadratic function of its preactivations but for what is left: such weights show Σ α_i x_i
and Σ α_i x_i x_iᵀ, and no single x_i.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import RowSplit, Unexplained, unjudged, verdict
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.attacks.single_layer.alternatives import exchangeable, turnable
from exhume.attacks.single_layer.blends import splitting_costs
from exhume.attacks.single_layer.linearised import Linearised
from exhume.attacks.single_layer.pruning import removal_costs
from exhume.attacks.single_layer.structure import predictable_share
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.observation import Observation
from exhume.reconstruction import Certificate

SPLIT_SHOWS = 10.0  # times the noise of an equation: what a blend would leave in the weights to be seen
DEBUG = {}
PREDICTABLE = 0.2


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
    drifted: bool = False,
    free_norm: bool = False,
    counted: int | None = None,
) -> Certificate:
    """The outcome and each candidate's confidence, from the weights alone (`weights`: as they were published).

    `drifted`: the features moved in training, so that a rest that looks like noise may be noise. `free_norm`: the norm
    of a sample is one of its unknowns. `counted`: so many of the first coordinates are those of the sample.
    """
    if unseen_loss is None:
        return unjudged(len(fit.candidates), split.held_out)
    m, d = fit.candidates.shape
    repeated = len(weights) / loss.outputs  # outputs that repeat each other have the same noise
    unknowns = d if free_norm else d - 1
    q = m * (unknowns + loss.outputs) / loss.equations
    left = Unexplained(fit.loss, unseen_loss, split.held_out * loss.outputs, q)
    linearised = Linearised.at(loss, fit, free_norm)
    held = weights[:, split.used + split.steering :].double().square().mean() / loss.scale**2  # few may be small ones
    noise = max(linearised.left_out, repeated * unseen_loss * float(held))
    share = predictable_share(loss, fit)
    if share > PREDICTABLE:
        noise *= 1 + share * loss.equations
    sizes = fit.candidates.double().square().sum(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
    steps = linearised.step[:, :counted].square().sum(dim=1)
    squares = (noise * linearised.variances(d if counted is None else counted) + steps) / sizes
    blends = splitting_costs(loss, fit, linearised) <= SPLIT_SHOWS * noise
    DEBUG.update(share=share,E=loss.equations,first=(noise*linearised.variances(d)/sizes).sqrt().tolist(), step=(steps/sizes).sqrt().tolist(), split=(splitting_costs(loss, fit, linearised)/noise).tolist(), noise=noise, L=fit.loss,q=q,h=split.held_out)
    ex = exchangeable(loss, fit, linearised, SPLIT_SHOWS * noise)
    tu = turnable(loss, fit, linearised, SPLIT_SHOWS * noise)
    DEBUG.update(ex=ex.tolist(), tu=tu.tolist())
    squares = squares.where(~(blends | ex | tu), torch.inf)
    return verdict(squares, removal_costs(fit, loss), left, split.held_out, weights, drifted)
