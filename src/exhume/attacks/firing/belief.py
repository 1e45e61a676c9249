"""What is believed of the samples, and how likely it makes the change of each unit.

Which units fire on a candidate is known as well as the candidate is: a preactivation z with an uncertainty s z* (z*:
the usual one) is positive with probability P = Φ(z / s z*). So an entry of C has a mean and a variance,

    E C_ki = p_ki u_ki,      p = l + (1 − l) P                      l: what a unit lets pass below zero (0 for ReLU)
    V C_ki = u_ki² ((1 + ρ_i²) (l² + (1 − l²) P) − p²),             ρ_i: how far its error signals u are off

and the change of unit k is Gaussian,  ΔW̃_k ~ N(Σ_i E C_ki x̃_i,  σ² I + Σ_i V C_ki x̃_i x̃_iᵀ).

Its likelihood weighs every equation by what is known of it. Where a candidate's pattern is certain, its part of ΔW̃_k
is an unknown multiple of x̃_i, and the d other directions say something of the others: exact equations, however wrong
the error signals. Where it is not, the expectation still says roughly where to go. s_i, ρ_i and σ² are found as the
likelihood wants them, so each candidate sharpens when its own evidence does. What stays blurred is in no sample's
place.
"""

from dataclasses import dataclass, replace
from math import log, pi, sqrt

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.firing.layer import FiringLayer

LEAST_BLUR, LEAST_SPREAD, MOST_SPREAD = 1e-4, 3e-3, 0.4
LEAST_NOISE, LEAST_HEAD_NOISE = 1e-12, 1e-8
FAINT_SIGNAL = 0.05  # of a candidate's mean square: a unit whose error signal happens to vanish may still be off
LARGEST_TURN = 20.0  # by which factor a variance may be asked to change at once
NEW_SPREAD = 0.3


@dataclass(frozen=True, eq=False, repr=False)
class Belief:
    """Candidates of norm 1, their coefficients (a_i, b_i), log s_i, log ρ_i, σ² and the head's.

    `sure`: whether expectations are taken for the truth (V = 0), as at the start, where everything is blurred."""

    candidates: Float[Tensor, "m c"]
    coefficients: Float[Tensor, "m s"]
    blur: Float[Tensor, " m"]
    spread: Float[Tensor, " m"]
    noise: float
    head_noise: float
    sure: bool = False

    @property
    def blurs(self) -> Float[Tensor, " m"]:
        return self.blur.exp()

    def only(self, kept: Bool[Tensor, " m"] | Int[Tensor, " few"]) -> "Belief":
        candidates, coefficients = self.candidates[kept], self.coefficients[kept]
        return replace(
            self, candidates=candidates, coefficients=coefficients, blur=self.blur[kept], spread=self.spread[kept]
        )

    def and_new(self, candidates: Float[Tensor, "m c"], coefficients: Float[Tensor, "m s"], blur: float) -> "Belief":
        fresh = torch.full_like(candidates[:, 0], log(blur))
        return replace(
            self,
            candidates=torch.cat([self.candidates, candidates]),
            coefficients=torch.cat([self.coefficients, coefficients]),
            blur=torch.cat([self.blur, fresh]),
            spread=torch.cat([self.spread, torch.full_like(fresh, log(NEW_SPREAD))]),
        )

    def blurred(self, which: Bool[Tensor, " m"], blur: float) -> "Belief":
        return replace(self, blur=self.blur.masked_fill(which, log(blur)))


def nothing(layer: FiringLayer) -> Belief:
    """No candidates: the whole change is noise."""
    none = layer.halfway[:0]
    return Belief(none, none.new_zeros(0, layer.signals.shape[1]), none[:, 0], none[:, 0], 1.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Outlook:
    """What a belief says of the units of a layer.

    `firing` is p, `slope` its derivative by z, `signals` u, `energy` its square, `gates` and `features` φ' and φ of the
    head. `weights` is the inverse covariance of each unit's change, `weighed` its product with what is left of the
    change; `entries` is C as the change itself would have it. `surprise`: the negative logarithm of the likelihood.
    `unexplained`: the share of the change that is not as expected."""

    belief: Belief
    firing: Float[Tensor, "h m"]
    probability: Float[Tensor, "h m"]
    slope: Float[Tensor, "h m"]
    signals: Float[Tensor, "h m"]
    energy: Float[Tensor, "h m"]
    entries: Float[Tensor, "h m"]
    weights: Float[Tensor, "h c c"]
    weighed: Float[Tensor, "h c"]
    gates: Float[Tensor, "h m"]
    features: Float[Tensor, "h m"]
    head_left: Float[Tensor, "h k"]
    surprise: float
    unexplained: float


def look(layer: FiringLayer, belief: Belief) -> Outlook:
    x, leak = belief.candidates, layer.leak
    z = layer.halfway @ x.T
    width = (belief.blurs * layer.usual).expand_as(z)
    if not belief.sure:  # a unit that switched during training is uncertain whatever is known of the candidate
        width = torch.sqrt(width.square() + (layer.moved @ x.T / 2).square() + torch.finfo(x.dtype).tiny)
    far = z / width
    probability = torch.special.ndtr(far)
    firing = leak + (1 - leak) * probability
    slope = (1 - leak) * torch.exp(-far.square() / 2) / sqrt(2 * pi) / width
    signals = layer.signals @ belief.coefficients.T
    energy = signals.square()
    energy = energy + FAINT_SIGNAL * energy.mean(dim=0)
    mean = firing * signals
    left = layer.change - mean @ x
    gates = torch.where(z > 0, 1.0, leak)
    features = z * gates
    head_left = layer.head_change - features @ _of_head(layer, belief)
    surprise = head_left.square().sum() / belief.head_noise / 2 + head_left.numel() * log(belief.head_noise) / 2
    if belief.sure:
        weights = (torch.eye(layer.dimensions).to(x) / belief.noise).expand(layer.h, -1, -1)
        weighed, entries = left / belief.noise, mean
        surprise = surprise + (left * weighed).sum() / 2
    else:
        squares = leak**2 + (1 - leak**2) * probability
        variance = energy * ((1 + (2 * belief.spread).exp()) * squares - firing.square())
        covariance = torch.matmul(variance[:, None, :] * x.T, x)
        covariance.diagonal(dim1=1, dim2=2).add_(belief.noise)
        factor = torch.linalg.cholesky(covariance)
        weights = torch.cholesky_inverse(factor)
        weighed = torch.bmm(weights, left[:, :, None])[:, :, 0]
        entries = mean + variance * (weighed @ x.T)
        surprise = surprise + (left * weighed).sum() / 2 + factor.diagonal(dim1=1, dim2=2).log().sum()
    return Outlook(
        belief,
        firing,
        probability,
        slope,
        signals,
        energy,
        entries,
        weights,
        weighed,
        gates,
        features,
        head_left,
        float(surprise),
        float(left.square().mean()),
    )


def _of_head(layer: FiringLayer, belief: Belief) -> Float[Tensor, "m k"]:
    return belief.coefficients[:, : layer.outputs] * layer.head_scale


def quadratic(outlook: Outlook) -> Float[Tensor, "h m"]:
    """x̃_iᵀ S_k⁻¹ x̃_i of every unit's covariance S_k."""
    x = outlook.belief.candidates
    return (torch.matmul(outlook.weights, x.T) * x.T).sum(dim=1)


def renewed(outlook: Outlook, most_blur: Float[Tensor, " m"], rate: float = 0.5) -> Belief:
    """The variances as the likelihood wants them, by the ratio of what a component shows to what it expects.

    Each component of a covariance is a sum of squares of projections; its best size, others kept, is where Σ (x̃ᵀS⁻¹r)²
    and Σ x̃ᵀS⁻¹x̃ agree over the entries that it is about: units that surely fire for ρ_i, those in doubt for s_i."""
    belief = outlook.belief
    seen = (outlook.weighed @ belief.candidates.T).square()
    expected = quadratic(outlook)
    fires = outlook.energy * outlook.probability * (outlook.probability > 0.5)
    doubt = outlook.energy * outlook.probability * (1 - outlook.probability)
    spread = belief.spread + rate / 2 * _turn(seen * fires, expected * fires)
    blur = belief.blur + rate * _turn(seen * doubt, expected * doubt)
    trace = outlook.weights.diagonal(dim1=1, dim2=2).sum()
    noise = belief.noise * float(_bounded(outlook.weighed.square().sum() / trace)) ** rate
    return replace(
        belief,
        spread=spread.clamp(log(LEAST_SPREAD), log(MOST_SPREAD)),
        blur=torch.minimum(blur, most_blur.log()).clamp_min(log(LEAST_BLUR)),
        noise=max(noise, LEAST_NOISE),
        head_noise=max(float(outlook.head_left.square().mean()), LEAST_HEAD_NOISE),
    )


def _turn(seen: Float[Tensor, "h m"], expected: Float[Tensor, "h m"]) -> Float[Tensor, " m"]:
    return _bounded(seen.sum(dim=0) / expected.sum(dim=0).clamp_min(torch.finfo(seen.dtype).tiny)).log()


def _bounded(ratio: Tensor) -> Tensor:
    return ratio.clamp(1 / LARGEST_TURN, LARGEST_TURN)
