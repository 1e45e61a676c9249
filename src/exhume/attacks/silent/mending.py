"""What was found, looked at as a whole: combinations of two samples are taken apart, what does not hold is given up.

With the other duals known, a sample's place is known nearly exactly. There a true dual has zeros at nearly all units
that are silent; a combination of the duals of two samples has them only where both are silent.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.silent.duals import annealed_duals
from exhume.attacks.silent.evidence import SAME, SOUND_SILENCE, evidence, silence_of, taken_apart, unlike_others
from exhume.attacks.silent.joint import orthogonal_to_others, places
from exhume.attacks.silent.placing import Placing
from exhume.attacks.silent.span import Span

BROKEN = 0.1  # share of silent units without zeros that a dual may always have
PASSES = 3
MOST_ANEW = 10  # of the most doubtful in one pass: each is a search of its own


def mended(span: Span, duals: Float[Tensor, "m r"]) -> Float[Tensor, "few r"]:
    """Duals that are not silent where they should be are settled anew, from the place that the others leave them."""
    for _ in range(PASSES):
        points = places(span, duals)
        silence = silence_of(span, duals, points)
        doubtful = (silence < SOUND_SILENCE).nonzero()[:, 0]
        changed = False
        for index in doubtful[silence[doubtful].argsort()][:MOST_ANEW].tolist():
            fresh = _settled_anew(span, duals, index, points[index : index + 1])
            if fresh is not None and fresh.silence > float(silence[index]) + 1e-3:
                duals, changed = torch.cat([duals[:index], fresh.dual, duals[index + 1 :]]), True
        if not changed:
            break
    return duals[~unlike_others(silence_of(span, duals, places(span, duals)), BROKEN)]


@dataclass(frozen=True, eq=False, repr=False)
class _Fresh:
    dual: Float[Tensor, "1 r"]
    silence: float


def _settled_anew(span: Span, duals: Float[Tensor, "m r"], index: int, point: Float[Tensor, "1 r"]) -> _Fresh | None:
    """From the place that the others leave; a combination is taken apart, and what the others have is passed over."""
    own, open_basis = orthogonal_to_others(duals)
    basis = torch.cat([open_basis, own[index][:, None]], dim=1)
    ended = annealed_duals(span, point, duals[index : index + 1], basis, Placing.inside(span, basis).ridge)
    seen = evidence(span, ended.duals, ended.points)
    if bool(seen.certain):
        return _Fresh(ended.duals, float(seen.silence))
    if not seen.mixed:
        return None
    pair = taken_apart(span, ended.duals[0], seen.mixed[0])
    others = torch.cat([duals[:index], duals[index + 1 :]])
    seen = evidence(span, pair, point.expand(len(pair), -1))
    fresh = seen.certain & ((pair @ others.T).abs().amax(dim=1) < 1 - SAME if len(others) else True)
    if not bool(fresh.any()):
        return None
    best = int(torch.where(fresh, seen.silence, 0.0).argmax())
    return _Fresh(pair[best : best + 1], float(seen.silence[best]))
