"""The search: all candidates at random, blurred, sharpened together; then those that stay blurred are drawn again.

start    every candidate is expected to fire as its blur says, and the blur is taken back step by step
sharpen  each candidate's own blur, as the likelihood wants it
again    candidates that stayed blurred are in no sample's place: they are drawn anew, blurred first, while the
         others keep explaining theirs. A round that does not end in a likelier belief is taken back.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.firing.belief import Belief, Outlook, look, nothing, renewed
from exhume.attacks.firing.layer import FiringLayer
from exhume.attacks.firing.step import best_coefficients, stepped

FIRST_BLURS, FIRST_STEPS = (1.0, 0.5, 0.25, 0.12), 12
NEW_BLURS, NEW_STEPS = (1.0, 0.5, 0.25, 0.15), 5
CAPS, CAP_STEPS = (0.3, 0.2), 5  # the most that a blur may be while all are sharpened together
HEAD_WEIGHT = 5.0  # of the head's equations at the start; of 1, 5, 20 and 60 the one with most samples after it
FIRST_NOISE = 0.01  # σ² after the start
FIRST_DAMPING = 0.1
SETTLED = 0.12  # of candidates less blurred than this nearly all are within a tenth of a sample
SHARP = 0.04
PATIENCE = 3  # every so many rounds without success only sharp candidates stay: others may stand in the way
LAST_PATIENCE = 6  # rounds without success after which a search ends: on three seeds, two at most came before a success
LEVELLING = 8  # renewals of σ² after candidates were taken away

Walk = Generator[Outlook, None, Outlook]


@dataclass(frozen=True, eq=False)
class SearchPlace:
    """Where a search is between two rounds: the best belief so far, and the rounds without success since."""

    belief: Belief
    surprise: float
    unexplained: float
    rounds: int = 0
    idle: int = 0

    @property
    def done(self) -> bool:
        """Every candidate is in a sample's place, or drawing others again has long failed."""
        return self.idle >= LAST_PATIENCE or bool((self.belief.blurs <= SETTLED).all())


def first_place(layer: FiringLayer, count: int, random: torch.Generator) -> Iterator[Outlook | SearchPlace]:
    """The start, a step at a time; its place last."""
    empty = nothing(layer)
    blind = replace(empty, head_noise=layer.outputs / layer.dimensions / HEAD_WEIGHT**2, sure=True)
    belief = _drawn(layer, look(layer, blind), count, FIRST_BLURS[0], random)
    for blur in FIRST_BLURS:
        belief = belief.blurred(torch.ones_like(belief.blur, dtype=torch.bool), blur)
        belief = (yield from _refined(layer, belief, FIRST_STEPS, belief.blurs)).belief
    belief = replace(belief, noise=FIRST_NOISE, head_noise=FIRST_NOISE, sure=False)
    outlook = yield from _sharpened(layer, belief)
    yield SearchPlace(outlook.belief, outlook.surprise, outlook.unexplained)


def next_place(
    layer: FiringLayer, count: int, place: SearchPlace, random: torch.Generator
) -> Iterator[Outlook | SearchPlace]:
    """One round, a step at a time; its place last."""
    only_sharp = place.idle % PATIENCE == PATIENCE - 1
    kept = place.belief.only(place.belief.blurs <= (SHARP if only_sharp else SETTLED))
    old = len(kept.candidates)
    belief = _drawn(layer, _levelled(layer, kept), count - old, NEW_BLURS[0], random)
    new = torch.arange(len(belief.candidates), device=belief.blur.device) >= old
    for blur in NEW_BLURS:
        belief = belief.blurred(new, blur)
        most = torch.full_like(belief.blur, blur)
        belief = (yield from _refined(layer, belief, NEW_STEPS, most)).belief
    outlook = yield from _sharpened(layer, belief)
    rounds = place.rounds + 1
    if outlook.surprise < place.surprise:
        yield SearchPlace(outlook.belief, outlook.surprise, outlook.unexplained, rounds)
    else:
        yield replace(place, rounds=rounds, idle=place.idle + 1)


def settled(belief: Belief) -> Belief:
    """The candidates that are in a sample's place as far as the likelihood tells, the sharpest first."""
    order = belief.blur.argsort()
    return belief.only(order[belief.blurs[order] <= SETTLED])


def _sharpened(layer: FiringLayer, belief: Belief) -> Walk:
    for cap in CAPS:
        outlook = yield from _refined(layer, belief, CAP_STEPS, torch.full_like(belief.blur, cap))
        belief = outlook.belief
    return outlook


def _refined(layer: FiringLayer, belief: Belief, steps: int, most_blur: Float[Tensor, " m"]) -> Walk:
    """Steps of Gauss-Newton, each followed by variances as the likelihood wants them then."""
    outlook, damping = look(layer, belief), FIRST_DAMPING
    for _ in range(steps):
        outlook, damping = stepped(layer, outlook, damping)
        if not belief.sure:
            outlook = look(layer, renewed(outlook, most_blur))
        yield outlook
    return outlook


def _levelled(layer: FiringLayer, belief: Belief) -> Outlook:
    """With the noise that those that are left leave."""
    outlook = look(layer, belief)
    for _ in range(LEVELLING):
        wanted = renewed(outlook, belief.blurs, rate=1.0)
        outlook = look(layer, replace(belief, noise=wanted.noise, head_noise=wanted.head_noise))
    return outlook


def _drawn(layer: FiringLayer, outlook: Outlook, count: int, blur: float, random: torch.Generator) -> Belief:
    """With so many new candidates at random, as they explain most of what is left."""
    belief = outlook.belief
    rows = torch.randn(count, layer.dimensions, generator=random, dtype=torch.float64).to(belief.candidates)
    rows = layer.facing(torch.nn.functional.normalize(rows, dim=1))
    return belief.and_new(rows, best_coefficients(layer, outlook, rows, blur), blur)
