"""The search: too many candidates at random, refined along the way that they imply, and pruned to those that count.

At first the layer is taken as if it had never moved. Then candidates and the way take turns. Candidates that explain
next to nothing beyond the others go by and by. Each further round adds a few where they explain most of what is left;
what does not hold its own against all that is left goes again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from exhume.attacks.foundation.projection import cross_validated
from exhume.attacks.rewind.fit import FIRST_DAMPING, Fit, fitted, pruned, reweighed, rewound, stepped
from exhume.attacks.rewind.path import TrainedLayer, Way
from exhume.attacks.rewind.proposing import drawn, proposed

STILL_STEPS = 6
FIRST_COSTS = (0.02, 0.05, 0.1, 0.2, 0.3)  # over what is left; candidates that cost less to remove go
COSTS = (0.1, 0.3, 1.0)  # of 42 samples on the first seeds none cost less than 0.9, of 17 others none more
STEPS_BETWEEN = 3
LEAST_NEW, NEW_SHARE = 3, 0.25
GAIN = 0.98  # a round that leaves more than this of the error was idle
PATIENCE = 3  # idle rounds


@dataclass(frozen=True, eq=False, repr=False)
class Place:
    """Where a search is between two rounds: what it goes on from, and the best so far."""

    fit: Fit
    best: Fit
    rounds: int = 0
    idle: int = 0

    @property
    def done(self) -> bool:
        return self.idle >= PATIENCE


def first_place(layer: TrainedLayer, count: int, bias: bool, random: torch.Generator) -> Iterator[Fit | Place]:
    """The first round, a step at a time; its place last."""
    candidates = drawn(count, layer.dimensions, bias, random).to(layer.end)
    fit = fitted(candidates, Way.unknown(layer), torch.ones_like(layer.end[:, 0]))
    damping = FIRST_DAMPING
    for _ in range(STILL_STEPS):
        fit, damping = stepped(reweighed(fit), damping)
        yield fit
    for least in (0.0, *FIRST_COSTS):
        for _ in range(STEPS_BETWEEN):
            fit, damping = stepped(rewound(fit), damping)
            yield fit
        fit = pruned(rewound(fit), least)
    yield Place(fit, fit)


def next_place(place: Place, bias: bool, random: torch.Generator) -> Iterator[Fit | Place]:
    """One round more, a step at a time; its place last."""
    fit, damping = place.fit, FIRST_DAMPING
    new = proposed(fit, max(LEAST_NEW, round(NEW_SHARE * len(fit.candidates))), bias, random)
    fit = fitted(torch.cat([fit.candidates, new]), fit.way, fit.weights)
    for least in COSTS:
        for _ in range(STEPS_BETWEEN):
            fit, damping = stepped(rewound(fit), damping)
            yield fit
        fit = pruned(rewound(fit), least)
    better = error(fit) < GAIN * error(place.best)
    best = fit if error(fit) < error(place.best) else place.best
    yield Place(fit, best, place.rounds + 1, 0 if better else place.idle + 1)


def error(fit: Fit) -> float:
    """What is left of a unit in the middle, squared, comparable between numbers of candidates."""
    candidates, layer = fit.candidates, fit.way.layer
    unknowns = candidates.numel() + fit.coefficients.numel()
    return cross_validated(fit.typical**2, unknowns, layer.equations)
