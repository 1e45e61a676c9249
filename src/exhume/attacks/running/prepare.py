"""The one way into an attack: `prepare` makes an observation and a request ready, `run` carries it out.

choose    the method, and the observation as that method looks at it: a network as φ(Wx + b), or with its layers
search    the initial head, where it is known up to its seed
withhold  the number of samples, unless the method has to be given it
refuse    a budget of memory that is too small
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from exhume.alarm import OutOfTime, given_up_at
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.running.choice import choose, withhold_count
from exhume.attacks.running.loop import Attacked, Progress, run_attack
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.running.snapshots import SnapshotKeeper
from exhume.attacks.running.start import FoundStart, find_start
from exhume.errors import UsageError
from exhume.observation import Observation

PIECES = "the budget ended before what was found could be made into whole inputs"
Watch = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class PreparedAttack:
    """`observation` is what the method sees. `start`: what came of the search for the initial head."""

    observation: Observation
    method: AnyMethod
    settings: AttackSettings
    start: FoundStart | None = None


def prepare(observation: Observation, settings: AttackSettings) -> PreparedAttack:
    views = _Views(observation)
    method = choose(settings, views.outline)
    seen, start = views.of(type(method)), None
    if seen.knowledge.initial == "seed":
        start = find_start(seen, settings.start_seeds)
        seen = start.observation
    seen = withhold_count(seen, method, settings.samples)
    require_room(seen, method, settings.limits.memory_bytes, settings.dtype, settings.ranks)
    return PreparedAttack(seen, method, settings, start)


def run(
    prepared: PreparedAttack,
    watch: Watch | None = None,
    checkpoint: Path | None = None,
    keeper: SnapshotKeeper | None = None,
) -> Attacked:
    """One attack, from the seed of its settings. `checkpoint` and `keeper` as in `run_attack`."""
    settings = prepared.settings
    limits = settings.limits.begun
    attacked = run_attack(
        prepared.observation,
        prepared.method,
        seed=settings.seed,
        limits=limits,
        held_out=settings.held_out,
        dtype=settings.dtype,
        products=settings.products,
        device=settings.device,
        watch=watch,
        checkpoint=checkpoint,
        keeper=keeper,
        ranks=settings.ranks,
    )
    found = attacked.reconstruction
    try:
        with given_up_at(limits.last if settings.ranks.size == 1 else math.inf):
            found = prepared.method.completed(found, prepared.observation)
    except OutOfTime:
        failure = "; ".join(filter(None, (found.facts.get("failure"), PIECES)))
        found = replace(found, facts={**found.facts, "failure": failure})
    shown = attacked.snapshots if found.candidates is attacked.reconstruction.candidates else ()  # pieces of inputs
    if prepared.start is not None:
        found = replace(found, facts={**found.facts, **prepared.start.summary()})
    return replace(attacked, reconstruction=found, snapshots=shown)


class _Views:
    """An observation as methods look at it; each look is taken once, because some build a network."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._seen: dict[object, Observation] = {}

    def of(self, method: type[AnyMethod]) -> Observation:
        look = getattr(method.view, "__func__", method.view)
        if look not in self._seen:
            self._seen[look] = method.view(self.observation)
        return self._seen[look]

    def outline(self, method: type[AnyMethod]) -> Outline:
        return Outline.of(self.of(method), rebuilt=not self.observation.layers)


def require_room(
    observation: Observation, method: AnyMethod, memory_bytes: int | None, dtype: torch.dtype, ranks: Ranks
) -> None:
    """Refuses a budget that is too small, and says which one would do."""
    if memory_bytes is None:
        return
    least = method.least_bytes(observation, dtype, ranks)
    if memory_bytes < least:
        known_count = observation.knowledge.samples
        samples = "" if known_count is None else f"{known_count:,} samples and "
        raise UsageError(
            f"expected a memory of at least {_mebibytes(least)} for {samples}p = {observation.features.p:,}, "
            f"d = {observation.d:,}, found {_mebibytes(memory_bytes)}; give --memory {_mebibytes(least)}"
        )


def _mebibytes(size: int) -> str:
    """
    >>> _mebibytes(2**30), _mebibytes(2**20 + 1)
    ('1024M', '2M')
    """
    return f"{math.ceil(size / 2**20)}M"
