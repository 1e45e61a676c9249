"""Whether a dual is that of one sample, judged without knowing the samples.

r − 1 entries of Y q can be made zero for any choice of r − 1 units. A true dual has far more: all silent units.
Three things are asked of a dual before it is called certain:

* *excess*: many more entries are zero, to rounding, than could be chosen, and than the entries beside zero let expect;
* *silence*: the units that are silent at its place are those with zeros, and the units that fire there are not;
* *alone*: the units with zeros are blind to this one direction only. Two samples that resemble each other share most of
  their silent units, and a combination of their duals is zero on all those, and on one more unit that fixes the ratio:
  it passes the first two. But then another direction is seen by that unit alone. Both directions together hold the
  duals of the two samples, which have the most zeros in their plane (`taken_apart`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.silent.grams import solve_positive, weighted_grams
from exhume.attacks.silent.span import Span

ZERO = 5.0  # times the rounding of an entry
BESIDE = 25.0  # entries from ZERO to here are chance: a fourth of them are expected below ZERO
CLEARLY = 0.3  # depth from which a unit is silent, or above zero by which it fires
LEAST_EXCESS = 4.0
LEAST_SILENCE = 0.5  # of true duals: 0.6 to 1, the less the longer the training and the wider the layer
UNLIKE_OTHERS = 5.0  # times the median share of units that broke their silence; true duals have up to 3.5 times it
MANY = 20  # duals that tell how often silence is broken
SOUND_SILENCE = 0.95  # what nearly all true duals have; combinations of two samples have less
ALONE = 30.0  # how much more than rounding the next direction is seen
WITNESSES = 10  # units that have to see it
FAINT_ENERGY = 40.0  # energy of a direction that a few single rows could make up: an entry has mean square 1
STARTS, TURNS = 24, 15
SAME = 1e-5  # 1 - |cosine| of two duals below which they are one
DIFFERENT = 1e-6  # 1 - |cosine| of two directions of a plane


@dataclass(frozen=True, eq=False, repr=False)
class DualEvidence:
    zeros: Bool[Tensor, "m u"]
    excess: Float[Tensor, " m"]
    chance: Float[Tensor, " m"]
    """Entries that are expected below the tolerance by chance."""
    silence: Float[Tensor, " m"]
    firing: Float[Tensor, " m"]
    certain: Bool[Tensor, " m"]
    mixed: dict[int, Float[Tensor, " r"]]
    """Duals that only lack being alone, with the other direction that hardly any unit with a zero sees."""

    @property
    def certain_of_a_pair(self) -> Bool[Tensor, " m"]:
        """For the two sparsest directions of a plane: these are no blends, however alike the two samples are, if nearly
        all units are silent that should be."""
        alike = torch.zeros_like(self.certain)
        alike[list(self.mixed)] = True
        return self.certain | (alike & (self.silence > SOUND_SILENCE))


def zeros_of(span: Span, duals: Float[Tensor, "m r"]) -> Bool[Tensor, "m u"]:
    """Which entries of the columns are zero to rounding."""
    return zeros_within(span, duals, 0.0)


def zeros_within(span: Span, duals: Float[Tensor, "m r"], width: float) -> Bool[Tensor, "m u"]:
    """Which are at most `width`, or zero to rounding."""
    return span.columns(duals).abs_() <= (ZERO * span.tolerance(duals)).clamp_min(width)


def silence_of(span: Span, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]) -> Float[Tensor, " m"]:
    """The share of zeros among the units that are clearly silent at the places."""
    return _share(zeros_of(span, duals), span.depth(points) > CLEARLY)


def unlike_others(silence: Float[Tensor, " m"], spared: float) -> Bool[Tensor, " m"]:
    """Whose silent units broke their silence far more often than those of the other duals: combinations of samples.

    How many units fire in between and are silent at both ends depends on the training, so the others are the measure,
    where there are enough of them. Shares below `spared` are never too large.

    >>> unlike_others(torch.tensor([0.98] * 20 + [0.81]), 0.1)[-2:]
    tensor([False,  True])
    >>> unlike_others(torch.tensor([0.9] * 20 + [0.61]), 0.1)[-1]
    tensor(False)
    """
    broken = 1 - silence
    if len(broken) < MANY:
        return broken > spared
    return broken > (UNLIKE_OTHERS * broken.median()).clamp_min(spared)


def evidence(span: Span, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]) -> DualEvidence:
    entries, rounding = span.columns(duals).abs_(), span.tolerance(duals)
    zeros = entries <= ZERO * rounding
    chance = ((entries <= BESIDE * rounding) & ~zeros).sum(dim=1) * (ZERO / (BESIDE - ZERO))
    depth = span.depth(points)
    silence, firing = _share(zeros, depth > CLEARLY), _share(zeros, depth < -CLEARLY)
    excess = zeros.sum(dim=1) - (span.r - 1) - chance
    certain = (excess > LEAST_EXCESS + 4 * chance.sqrt()) & (silence > LEAST_SILENCE) & (silence > 3 * firing)
    mixed = {}
    for index in certain.nonzero()[:, 0].tolist():
        other = _also_unseen(span.rows[zeros[index]], float(rounding[index]))
        if other is not None:
            mixed[index], certain[index] = other, False
    return DualEvidence(zeros, excess, chance, silence, firing, certain, mixed)


def _share(zeros: Bool[Tensor, "m u"], among: Bool[Tensor, "m u"]) -> Float[Tensor, " m"]:
    return (zeros & among).sum(dim=1) / among.sum(dim=1).clamp_min(1)


def _also_unseen(rows: Float[Tensor, "k r"], rounding: float) -> Float[Tensor, " r"] | None:
    """Another direction that hardly any of the rows sees that are zero in one; None where there is no such.

    The faintest other directions, each made as sparse as it gets by reweighting: a combination of two samples leaves
    one that only the rows see which fixed it.
    """
    energies, vectors = torch.linalg.eigh(rows.T @ rows)
    if len(energies) < 2:
        return None
    noise = max(float(energies[0].clamp_min(0)), rounding**2 * len(rows))
    if float(energies[1]) < ALONE**2 * noise:
        return vectors[:, 1]
    faint = (energies[1:] < FAINT_ENERGY).nonzero()[:STARTS, 0] + 1
    if not len(faint):
        return None
    others = vectors[:, 1:]
    seen, directions = (rows @ others).float(), (vectors[:, faint].T @ others).float()
    for _ in range(TURNS):
        entries = (directions @ seen.T).abs()
        weights = (entries.square() + (0.1 * entries.mean(dim=1, keepdim=True)).square()).pow(-0.75)
        directions = solve_positive(weighted_grams(seen, weights), directions, 0.0)
        directions = directions / directions.norm(dim=1, keepdim=True)
    entries = (directions @ seen.T).abs()
    witnesses = (entries > 0.1 * entries.square().mean(dim=1, keepdim=True).sqrt()).sum(dim=1)
    sparsest = int(witnesses.argmin())
    return None if int(witnesses[sparsest]) >= WITNESSES else others @ directions[sparsest].to(rows)


def taken_apart(span: Span, dual: Float[Tensor, " r"], other: Float[Tensor, " r"]) -> Float[Tensor, "few r"]:
    """The directions with the most zeros in the plane of two: each unit is zero in one direction of the plane."""
    first, second = span.columns(torch.stack([dual, other]))
    angles = torch.atan2(first, -second)  # first cos a + second sin a = 0
    loud = (first.square() + second.square()).sqrt() > 0.05
    angles = angles[loud]
    directions = torch.stack([torch.cos(angles), torch.sin(angles)], dim=1)
    plane = directions @ torch.stack([dual, other])
    plane = plane / plane.norm(dim=1, keepdim=True)
    zeros = zeros_of(span, plane).sum(dim=1)
    chosen: list[int] = []
    for index in zeros.argsort(descending=True).tolist():
        if len(chosen) == 2:
            break
        if not chosen or float((plane[chosen] @ plane[index]).abs().max()) < 1 - DIFFERENT:
            chosen.append(index)
    return plane[chosen]
