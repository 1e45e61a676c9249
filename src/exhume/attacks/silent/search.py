"""The search for all samples: many starts at once, beside what is found, until the rank is reached.

A round: random places orthogonal to the duals found so far; a few turns of place → dual → place (`weighted_duals`,
`Placing.place`), all starts in one batch; those that ended at the same dual once; each annealed to rounding; each
asked for evidence. What passes is kept. A round without news, and a full set, look at what was found instead
(`mending.py`): with the others known, a sample's place is known nearly exactly, so that a combination of two samples
shows, and can be taken apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.attacks.silent.duals import annealed_duals, weighted_duals
from exhume.attacks.silent.evidence import SAME, evidence, taken_apart
from exhume.attacks.silent.mending import mended
from exhume.attacks.silent.placing import Placing, complement
from exhume.attacks.silent.span import Span, batches

STARTS = 64
LEAST_TURNS, TURNS_PER_SAMPLE = 12, 0.16  # starts converge in more turns where there are more samples
ALIKE = 0.03  # the same for duals on their way
LAST_TURNS = 12  # with reweighting, which is dear and sharpens what has taken shape
IDLE_ROUNDS = 8
NEARLY_FULL = 0.9  # of the rank, from which on places are exact enough to doubt a dual by them


@dataclass(frozen=True, eq=False)
class Found:
    """Duals so far, and how many rounds there were since there were more than ever before (`most`)."""

    duals: Float[Tensor, "m r"]
    round: int = 0
    idle: int = 0
    most: int = 0
    sound: bool = False
    """Whether a full set has been looked at as a whole."""

    @property
    def over(self) -> bool:
        return self.sound or self.idle >= IDLE_ROUNDS

    def followed_by(self, duals: Float[Tensor, "more r"], sound: bool = False) -> "Found":
        news = len(duals) > self.most
        return Found(duals, self.round + 1, 0 if news else self.idle + 1, max(self.most, len(duals)), sound)


def nothing_found(span: Span) -> Found:
    return Found(span.rows.new_zeros(0, span.r))


def search(span: Span, seed: int, begun: Found | None = None) -> Iterator[Found]:
    """Yields what is found after every round, until a full set holds together or many rounds brought nothing."""
    found = begun or nothing_found(span)
    while not found.over:
        if len(found.duals) < span.r:
            found = _round(span, found, seeds.generator(seeds.derive(seed, "start") + found.round, "start"))
        else:
            found = _checked(span, found)
        yield found


def _round(span: Span, found: Found, stream: torch.Generator) -> Found:
    placing = Placing.inside(span, complement(found.duals))
    free = span.r - len(found.duals)
    many = min(STARTS, 8 * free)
    points = torch.randn(many, span.r, generator=stream, dtype=torch.float32).to(span.rows)
    points = (points * span.noise.sqrt()) @ placing.basis @ placing.basis.T  # where data vary most there is least noise
    duals, points = _followed(placing.to(torch.float32), span.facing(points).float())
    duals, points = duals.to(span.rows), points.to(span.rows)
    chosen = _different(duals, _peaked(span.columns(duals)))
    kept = _joined(found.duals, _settled(span, placing, duals[chosen], points[chosen]))
    if len(kept) > len(found.duals):
        return found.followed_by(kept)
    kept = mended(span, found.duals) if len(found.duals) >= NEARLY_FULL * span.r else found.duals
    return found.followed_by(kept)


def _checked(span: Span, found: Found) -> Found:
    """A full set, looked at as a whole: what does not hold is given up, and the search goes on."""
    kept = mended(span, found.duals)
    return found.followed_by(kept, sound=len(kept) == span.r)


def _followed(placing: Placing, points: Float[Tensor, "m r"]) -> tuple[Float[Tensor, "m r"], Float[Tensor, "m r"]]:
    duals = torch.zeros_like(points)
    turns = max(LEAST_TURNS, round(TURNS_PER_SAMPLE * placing.span.r))
    for part in batches(placing.span, len(points)):
        here = points[part]
        for turn in range(turns):
            duals[part] = weighted_duals(placing.span, here, rounds=1 if turn < turns - LAST_TURNS else 3)
            here = placing.place(duals[part])
        points[part] = here
    return duals, points


def _peaked(columns: Float[Tensor, "m u"]) -> Float[Tensor, " m"]:
    """Mean square over squared mean size: large where many entries are zero."""
    return columns.square().mean(dim=1) / columns.abs().mean(dim=1).square()


def _different(duals: Float[Tensor, "m r"], merit: Float[Tensor, " m"]) -> list[int]:
    """One of each group of duals that are nearly parallel, the best first."""
    chosen: list[int] = []
    for index in merit.argsort(descending=True).tolist():
        if not chosen or float((duals[chosen] @ duals[index]).abs().max()) < 1 - ALIKE:
            chosen.append(index)
    return chosen


def _settled(
    span: Span, placing: Placing, duals: Float[Tensor, "m r"], points: Float[Tensor, "m r"]
) -> Float[Tensor, "few r"]:
    """Those of them that become certain."""
    kept = [duals[:0]]
    for part in batches(span, len(duals)):
        ended = annealed_duals(span, points[part], duals[part], placing.basis, placing.ridge)
        told = evidence(span, ended.duals, ended.points)
        kept.append(ended.duals[told.certain])
        for index, other in told.mixed.items():
            pair = taken_apart(span, ended.duals[index], other)
            kept.append(pair[evidence(span, pair, placing.place(pair)).certain])
    return torch.cat(kept)


def _joined(duals: Float[Tensor, "m r"], fresh: Float[Tensor, "few r"]) -> Float[Tensor, "more r"]:
    """Both, without copies, and no more than there are dimensions."""
    for dual in fresh:
        if len(duals) < duals.shape[1] and not (len(duals) and float((duals @ dual).abs().max()) > 1 - SAME):
            duals = torch.cat([duals, dual[None]])
    return duals
