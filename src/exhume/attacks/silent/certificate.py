"""The verdict on silent-units samples, by units that the attack never used.

A tenth of the units are held out. A sample's place says which of them are silent at all known ends, by a clear margin
(`MARGIN` of the median preactivation); its dual says what each of them got from the sample. For a true sample nearly
all of those entries are zero to rounding: only units that fired in between are not. For anything else an entry is zero
by chance, with the share p₀ of zeros among the units that fire at its place. The chance of as many zeros as were seen
is the upper tail of a binomial distribution.

A sample is called recovered if that chance is below one in a million, if most of its silent witnesses are silent, and
if its place is exact to a twentieth of its norm by leaving units out. Where a few samples are missing it has to be
exact to two thousandths; where many are, nothing is called recovered.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.special import bdtrc
from torch import Tensor

from exhume.attacks.silent.evidence import CLEARLY, zeros_of
from exhume.attacks.silent.samples import MOST_OF_THEM, Samples
from exhume.attacks.silent.span import Span

CHANCE = 1e-6
MARGIN = 0.1
SILENT_SHARE = 0.6  # of units this little below zero some fired in between; chance alone leaves p0, a few in a thousand
EXACT = 0.05
EXACT_OF_A_PART = 0.002  # where samples are missing, places are fitted, and off by many times their spread


@dataclass(frozen=True, eq=False, repr=False)
class Witnessed:
    """`silent`: held-out units that should be silent; `kept`: those that are. `chance`: of so many by chance.

    `heard`: mean square entry of the units that should be silent over that of all held-out units."""

    silent: Int[Tensor, " m"]
    kept: Int[Tensor, " m"]
    chance: Float[Tensor, " m"]
    heard: float
    confidence: tuple[float, ...]


def witnessed(fitted: Span, unseen: Span, samples: Samples, explained: bool = True) -> Witnessed:
    """`explained`: only rounding is left of the change beside its rank; otherwise nothing is called recovered."""
    duals, points = samples.duals, samples.points
    zeros, depth = zeros_of(unseen, duals), unseen.depth(points)
    should = depth > MARGIN
    silent, kept = should.sum(dim=1), (zeros & should).sum(dim=1)
    by_chance = _zeros_by_chance(fitted, samples)
    at_least = bdtrc((kept - 1).double().numpy(force=True), silent.numpy(force=True), by_chance.numpy(force=True))
    chance = torch.where(kept.cpu() > 0, torch.as_tensor(at_least), 1.0)
    share = kept / silent.clamp_min(1)
    known = int(samples.certain.sum())
    exact = EXACT if known == fitted.r else EXACT_OF_A_PART if known >= MOST_OF_THEM * fitted.r else 0.0
    sure = (
        samples.certain.cpu()
        & explained
        & (chance < CHANCE)
        & (share >= SILENT_SHARE).cpu()
        & (samples.spread < exact).cpu()
    )
    confidence = tuple(_confidence(bool(ok), float(p), float(s)) for ok, p, s in zip(sure, chance, share, strict=True))
    return Witnessed(silent, kept, chance, heard(unseen, duals, points), confidence)


def heard(unseen: Span, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]) -> float:
    """What units that should be silent got from samples at these places, over what all held-out units got."""
    energy, should = unseen.columns(duals).square(), unseen.depth(points) > MARGIN
    share = float((energy * should).sum() / should.sum().clamp_min(1)) / max(float(energy.mean()), 1e-300)
    return share if math.isfinite(share) else 1.0


def _zeros_by_chance(fitted: Span, samples: Samples) -> Float[Tensor, " m"]:
    """p₀: how often a unit that fires at a sample's place has a zero all the same; one in all at least."""
    fires = fitted.depth(samples.points) < -CLEARLY
    zeros = zeros_of(fitted, samples.duals) & fires
    return ((zeros.sum(dim=1) + 1) / (fires.sum(dim=1) + 1)).double().clamp_max(1.0)


def _confidence(sure: bool, chance: float, share: float) -> float:
    """From 1/2 on for what is sure; below it, as far as the witnesses go."""
    return min(1.0, 1 - chance) if sure else min(0.49, 0.49 * share * (1 - chance))
