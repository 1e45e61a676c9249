"""The search for all samples: many starts at once, beside what is found, until the rank is reached.

A round begins with places orthogonal to the duals found so far. Where the inputs are pictures, they come from
`separation.py`, one per missing sample: near enough that each is annealed to its sample at once. Where they are not, or
where that brought nothing, places are random, and a few turns of place → dual → place (`weighted_duals`,
`Placing.place`) move them towards samples. Those that ended at the same dual count once; each is annealed to rounding
and asked for evidence. What passes is kept.

Where few units are silent on a sample, a wide spike ε loses its dual even from its own place. So after a round without
news the next ones anneal from narrower spikes, straight from random places.

Pictures that do not settle one by one are fitted all together (`likelihood.py`); what that leaves open is remembered as
`likely`. A round without news, and a full set, look at what was found instead (`mending.py`): with the others known, a
sample's place is known nearly exactly, so that a combination of two samples shows, and can be taken apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.attacks.silent.duals import WIDEST as SPIKE
from exhume.attacks.silent.duals import annealed_duals, unit_rows, weighted_duals
from exhume.attacks.silent.evidence import SAME, evidence, taken_apart
from exhume.attacks.silent.joint import orthogonal_to_others
from exhume.attacks.silent.likelihood import AGAIN, WIDEST, likeliest
from exhume.attacks.silent.many_duals import many_duals
from exhume.attacks.silent.mending import mended
from exhume.attacks.silent.placing import Placing, complement
from exhume.attacks.silent.separation import separated, unmixed
from exhume.attacks.silent.span import Span, batches
from exhume.layer_states import FAINT
from exhume.picture_layouts import Layout, edges, layout_of
from exhume.solving import SOLVE_ERRORS

STARTS = 64
LEAST_TURNS, TURNS_PER_SAMPLE = 12, 0.16  # starts converge in more turns where there are more samples
ALIKE = 0.03  # the same for duals on their way
LAST_TURNS = 12  # with reweighting, which is dear and sharpens what has taken shape
IDLE_ROUNDS, IDLE_WORK = 8, 1000  # rounds without news: so many at least, and for few samples so many over r
DOUBTED = 0.3  # of the duals found, in a round after one without news
IDLE_ROUNDS_OF_PICTURES = 3  # their places hardly differ from round to round
NEARLY_FULL = 0.9  # of the rank, from which on places are exact enough to doubt a dual by them
WIDTHS = (SPIKE, 0.12, 0.06)  # ε to begin with: 87 silent units of 385 hold a dual among 20 from 0.12 on, not 0.25
SHARPENED_FROM = (0.003, 0.01)  # ε for duals of a likely set: small enough to stay, large enough to mend


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """Duals so far, and how many rounds there were since there were more than ever before (`most`)."""

    duals: Float[Tensor, "m r"]
    likely: Float[Tensor, "w r"]
    """A whole set of duals (w = r) that pictures make likely, those found among them; w = 0 where there is none."""
    round: int = 0
    idle: int = 0
    most: int = 0
    sound: bool = False
    """Whether a full set has been looked at as a whole."""

    @property
    def over(self) -> bool:
        patience = max(IDLE_ROUNDS, IDLE_WORK // max(1, self.duals.shape[1]))
        return self.sound or self.idle >= (IDLE_ROUNDS_OF_PICTURES if len(self.likely) else patience)

    def followed_by(self, duals: Float[Tensor, "more r"], sound: bool = False) -> "Found":
        news = len(duals) > self.most
        idle, most = 0 if news else self.idle + 1, max(self.most, len(duals))
        return Found(duals, self.likely, self.round + 1, idle, most, sound)

    def candidates(self) -> Float[Tensor, "more r"]:
        """What is found, and of the likely set what is not found: each dual found stands for the one nearest to it."""
        if not len(self.likely) or len(self.duals) == len(self.likely):
            return self.duals
        left = torch.ones(len(self.likely), dtype=torch.bool, device=self.likely.device)
        for alike in (self.duals @ self.likely.T).abs():
            left[int(torch.where(left, alike, -1.0).argmax())] = False
        return torch.cat([self.duals, self.likely[left]])


def nothing_found(span: Span) -> Found:
    none = span.rows.new_zeros(0, span.r)
    return Found(none, none)


def search(span: Span, seed: int, begun: Found | None = None) -> Iterator[Found]:
    """Yields what is found after every round, until a full set holds together or many rounds brought nothing."""
    found = begun or nothing_found(span)
    if span.leak > FAINT:  # no zeros: one look at pictures is all there is
        layout = layout_of(span.pixels)
        if layout is not None and not found.round:
            found = with_edges(span, layout, found, seeds.generator(seeds.derive(seed, "start"), "start"))
            yield found.followed_by(found.duals, sound=True)
        return
    while not found.over:
        if len(found.duals) < span.r:
            found = _round(span, found, seeds.generator(seeds.derive(seed, "start") + found.round, "start"))
        else:
            found = _checked(span, found)
        yield found


def with_places(span: Span, found: Found, points: Float[Tensor, "m r"]) -> Found:
    """What is found, and what becomes certain from places that somebody suggests; the search may go on from there."""
    if not len(points):
        return found
    placing = Placing.inside(span, complement(found.duals[:0]))
    fresh = _settled(span, placing, weighted_duals(span, points), points)
    return replace(found.followed_by(_joined(found.duals, fresh)), idle=0)


def _round(span: Span, found: Found, stream: torch.Generator) -> Found:
    found, kept = _of_pictures(span, found, stream)
    if len(kept) == len(found.duals) and not (len(found.likely) and _are_many(span)):
        kept = _joined(found.duals, _from_random_places(span, found, stream))
    if len(kept) > len(found.duals):
        return found.followed_by(kept)
    kept = mended(span, found.duals) if len(found.duals) >= NEARLY_FULL * span.r else found.duals
    return found.followed_by(kept)


def _checked(span: Span, found: Found) -> Found:
    """A full set, looked at as a whole: what does not hold is given up, and the search goes on."""
    kept = mended(span, found.duals)
    return found.followed_by(kept, sound=len(kept) == span.r)


def _of_pictures(span: Span, found: Found, stream: torch.Generator) -> tuple[Found, Float[Tensor, "more r"]]:
    """One place per missing sample; all together where that brings nothing. No news where inputs are no pictures."""
    layout = layout_of(span.pixels)
    if layout is None:
        return found, found.duals
    try:
        kept = _one_by_one(span, layout, found.duals, stream)
        return (found, kept) if len(kept) > len(found.duals) else _all_together(span, layout, found, stream)
    except SOLVE_ERRORS:  # pictures with fewer edges than there are of them
        return found, found.duals


def _one_by_one(
    span: Span, layout: Layout, found: Float[Tensor, "m r"], stream: torch.Generator
) -> Float[Tensor, "more r"]:
    placing = Placing.inside(span, complement(found))
    points = _edged_places(span, layout, placing.basis, stream)
    if _are_many(span):
        ended = many_duals(span, points)
        return _joined(found, ended.duals[evidence(span, ended.duals, ended.points).certain])
    return _joined(found, _settled(span, placing, weighted_duals(span, points), points))


def _are_many(span: Span) -> bool:
    """Samples whose Gram matrices do not fit in memory together. Random starts for them take minutes per round."""
    return len(batches(span, span.r)) > 1


def _all_together(
    span: Span, layout: Layout, found: Found, stream: torch.Generator
) -> tuple[Found, Float[Tensor, "more r"]]:
    if _are_many(span):  # a step of their likelihood takes a second, and does not end nearer to the pictures
        return with_edges(span, layout, found, stream), found.duals
    widest = AGAIN if len(found.likely) else WIDEST
    begun = found if len(found.likely) else with_edges(span, layout, found, stream)
    settled = torch.arange(span.r, device=span.rows.device) < len(found.duals)
    likely = likeliest(span, begun.candidates(), edges(layout, span.pixels), settled, widest)
    ridge = Placing.inside(span, complement(found.duals)).ridge
    return replace(found, likely=likely), _joined(found.duals, _sharpened(span, likely, ridge))


def with_edges(span: Span, layout: Layout, found: Found, stream: torch.Generator) -> Found:
    """The likely set by edges, beside the duals found: these leave each sample its share of those that are missing."""
    own, basis = orthogonal_to_others(found.duals)
    points = _edged_places(span, layout, basis, stream)
    if len(own):
        seen = edges(layout, span.pixels)
        share = unmixed(torch.einsum("mr,rkp->mkp", own, seen), torch.einsum("rf,rkp->fkp", basis, seen))
        points = torch.cat([own + share @ basis.T, points])
    return replace(found, likely=unit_rows(torch.linalg.pinv(span.facing(points)).T))


def _edged_places(
    span: Span, layout: Layout, basis: Float[Tensor, "r f"], stream: torch.Generator
) -> Float[Tensor, "f r"]:
    """Without a bias edges leave the sign open: the one whose silent units are blind to more is taken."""
    points = span.facing(separated(edges(layout, basis.T @ span.pixels), stream) @ basis.T)
    if span.bias or span.leak > FAINT:
        return points
    blind = [_peaked(span.columns(weighted_duals(span, side))) for side in (points, -points)]
    return torch.where((blind[0] >= blind[1])[:, None], points, -points)


def _not_doubted(found: Found, stream: torch.Generator) -> Float[Tensor, "few r"]:
    """The duals beside which others are looked for. A wrong one among them hides the samples that it is a blend of: so
    after a round without news some are left out, by chance."""
    if not found.idle:
        return found.duals
    drawn = torch.rand(len(found.duals), generator=stream, dtype=torch.float64).to(found.duals.device)
    return found.duals[drawn >= DOUBTED]


def _from_random_places(span: Span, found: Found, stream: torch.Generator) -> Float[Tensor, "few r"]:
    """Duals that became certain beside those found."""
    known = _not_doubted(found, stream)
    placing = Placing.inside(span, complement(known))
    many = min(STARTS, 8 * (span.r - len(known)))
    points = torch.randn(many, span.r, generator=stream, dtype=torch.float32).to(span.rows)
    points = (points * span.noise.sqrt()) @ placing.basis @ placing.basis.T  # where data vary most there is least noise
    points, widest = span.facing(points), WIDTHS[found.idle % len(WIDTHS)]
    if widest < SPIKE:
        return _settled(span, placing, weighted_duals(span, points), points, widest)
    duals, points = _followed(placing.to(torch.float32), points.float())
    duals, points = duals.to(span.rows), points.to(span.rows)
    chosen = _different(duals, _peaked(span.columns(duals)))
    return _settled(span, placing, duals[chosen], points[chosen])


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
    span: Span,
    placing: Placing,
    duals: Float[Tensor, "m r"],
    points: Float[Tensor, "m r"],
    widest: float = SPIKE,
) -> Float[Tensor, "few r"]:
    """Those of them that become certain."""
    kept = [duals[:0]]
    for part in batches(span, len(duals)):
        ended = annealed_duals(span, points[part], duals[part], placing.basis, placing.ridge, widest)
        seen = evidence(span, ended.duals, ended.points)
        kept.append(ended.duals[seen.certain])
        for index, other in seen.mixed.items():
            pair = taken_apart(span, ended.duals[index], other)
            kept.append(pair[evidence(span, pair, placing.place(pair)).certain_of_a_pair])
    return torch.cat(kept)


def _sharpened(span: Span, likely: Float[Tensor, "r r"], ridge: float) -> Float[Tensor, "few r"]:
    """Those of a likely set that become certain where they are."""
    points = span.facing(torch.linalg.pinv(likely).T)
    everything = torch.eye(span.r, dtype=points.dtype, device=points.device)
    kept = [likely[:0]]
    for part in batches(span, span.r):
        for width in SHARPENED_FROM:
            ended = annealed_duals(span, points[part], likely[part], everything, ridge, widest=width).duals
            kept.append(ended[evidence(span, ended, points[part]).certain])
    return torch.cat(kept)


def _joined(duals: Float[Tensor, "m r"], fresh: Float[Tensor, "few r"]) -> Float[Tensor, "more r"]:
    """Both, without copies, and no more than there are dimensions."""
    for dual in fresh:
        if len(duals) < duals.shape[1] and not (len(duals) and float((duals @ dual).abs().max()) > 1 - SAME):
            duals = torch.cat([duals, dual[None]])
    return duals
