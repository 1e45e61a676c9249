"""Whether a dual is that of one sample, told without knowing the samples.

r − 1 entries of Y q can be made zero for any choice of r − 1 units. A true dual has far more: all units that were silent.
Three things are asked of a dual before it is called certain:

* *excess*: many more entries are zero, to rounding, than could be chosen, and than the entries beside zero let expect;
* *silence*: the units that are silent at its place are those with zeros, and the units that fire there are not;
* *alone*: the units with zeros are blind to this one direction only. Two samples that resemble each other share most of
  their silent units, and a combination of their duals is zero on all those, and on one more unit that fixes the ratio:
  it passes the first two. But then another direction is seen by that unit alone.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.silent.span import Span

ZERO = 5.0  # times the rounding of an entry
BESIDE = 25.0  # entries from ZERO to here are chance: a fourth of them are expected below ZERO
CLEARLY = 0.3  # depth from which a unit is silent, or above zero by which it fires
LEAST_EXCESS = 4.0
LEAST_SILENCE = 0.8
SOUND_SILENCE = 0.95  # of true duals nearly all have this much; combinations of two samples do not (docs/silent-units.md)
ALONE = 30.0  # how much more than rounding the next direction is seen
WITNESSES = 8.0  # units that see it, as a participation ratio


@dataclass(frozen=True, eq=False)
class Evidence:
    zeros: Bool[Tensor, "m u"]
    excess: Float[Tensor, " m"]
    chance: Float[Tensor, " m"]
    """Entries that are expected below the tolerance by chance."""
    silence: Float[Tensor, " m"]
    firing: Float[Tensor, " m"]
    certain: Bool[Tensor, " m"]


def evidence(span: Span, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]) -> Evidence:
    entries, rounding = span.columns(duals).abs_(), span.tolerance(duals)
    zeros = entries <= ZERO * rounding
    chance = ((entries <= BESIDE * rounding) & ~zeros).sum(dim=1) * (ZERO / (BESIDE - ZERO))
    depth = span.depth(points)
    silence, firing = _share(zeros, depth > CLEARLY), _share(zeros, depth < -CLEARLY)
    excess = zeros.sum(dim=1) - (span.r - 1) - chance
    certain = (excess > LEAST_EXCESS + 4 * chance.sqrt()) & (silence > LEAST_SILENCE) & (silence > 3 * firing)
    for index in certain.nonzero()[:, 0].tolist():
        certain[index] = _alone(span.rows[zeros[index]], float(rounding[index]))
    return Evidence(zeros, excess, chance, silence, firing, certain)


def _share(zeros: Bool[Tensor, "m u"], among: Bool[Tensor, "m u"]) -> Float[Tensor, " m"]:
    return (zeros & among).sum(dim=1) / among.sum(dim=1).clamp_min(1)


def _alone(rows: Float[Tensor, "k r"], rounding: float) -> bool:
    """Whether rows that are zero in one direction see every other one, and by many of them.

    From the Gram matrix: its eigenvectors, and how many rows see each of the two least seen of the others.
    """
    energies, vectors = torch.linalg.eigh(rows.T @ rows)
    noise = max(float(energies[0].clamp_min(0)), rounding**2 * len(rows))
    if len(energies) < 2:
        return True
    if float(energies[1]) < ALONE**2 * noise:
        return False
    seen = (rows @ vectors[:, 1:3]).square()
    return bool((seen.sum(dim=0).square() / seen.square().sum(dim=0) > WITNESSES).all())
