"""A plan carried out within a budget: each attack gets its share of the time, and the first that decides ends it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.running.budget import LEAST_SECONDS, ready_in_time
from exhume.attacks.running.loop import Attacked, Progress
from exhume.attacks.running.prepare import PreparedAttack, prepare, run
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.running.snapshots import Snapshot, SnapshotKeeper
from exhume.auditing.progress_folder import ProgressPart
from exhume.errors import ExhumeError, UsageError
from exhume.observation import Observation
from exhume.private_paths import without_folders
from exhume.reconstruction import Outcome, Reconstruction
from exhume.report.subject import attempt_line
from exhume.verdicts import FITTED, SEVERAL

OUT_OF_TIME = "the time was used up before it"
GENEROUS = 1.5
"""How much more than an equal share of the time that is left an attack may take: cheap ones come first."""
EXPLAINED = 0.01
"""Share of the unseen weights that trusted candidates may leave unexplained without another attack being tried."""
_ORDER = (Outcome.RECOVERED, Outcome.PARTIAL, Outcome.SPURIOUS, Outcome.NOT_CONVERGED)
Watch = Callable[[PlannedAttack, Progress], None]


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack: what came of it, or why it could not run."""

    offer: PlannedAttack
    attacked: Attacked | None
    snapshots: tuple[Snapshot, ...]
    seconds: float
    failure: str | None = None

    def line(self) -> dict[str, Any]:
        """As the page lists it."""
        if self.attacked is not None:
            return attempt_line(self.attacked.reconstruction, self.offer.why, self.attacked.stopped)
        empty = dict.fromkeys(("candidates", "loss", "held_out_loss", "iterations", "passes"))
        return {
            "method": self.offer.method,
            "told": self.offer.samples,
            "why": self.offer.why,
            "seed": self.offer.seed,
            "outcome": None,
            "note": self.failure or "",
            "layers": [],
            **empty,
            "seconds": round(self.seconds, 2),
        }


def carry_out(
    observation: Observation,
    offers: tuple[PlannedAttack, ...],
    seconds: float,
    settings: AttackSettings,
    watch: Watch | None = None,
    kept: ProgressPart | None = None,
) -> tuple[Attempt, ...]:
    """Runs the offers in their order until one recovers everything, the time ends, or somebody interrupts.

    `settings` is what they have in common; each gets its own method, seed, time and number of samples. `kept` is where
    they say how far they are, and go on from.
    """
    began = time.monotonic()
    attempts: list[Attempt] = []
    for index, offer in enumerate(offers):
        left = seconds - (time.monotonic() - began)
        begun = kept is not None and kept.has_begun(index)
        if left < LEAST_SECONDS and attempts and not begun:
            attempts.append(Attempt(offer, None, (), 0.0, OUT_OF_TIME))
            continue
        share = min(max(left, LEAST_SECONDS), GENEROUS * left / (len(offers) - index))
        share = share if kept is None else kept.share(index, share)
        limits = replace(settings.limits, seconds=max(share, LEAST_SECONDS), since=time.monotonic())
        onlooker = _onlooker(offer, watch, kept, index, len(offers))
        checkpoint = None if kept is None else kept.checkpoint(index)
        attempts.append(_attempt(observation, offer, replace(settings, limits=limits), onlooker, checkpoint))
        done = attempts[-1].attacked
        if done is not None and (done.interrupted or _decides(done.reconstruction)):
            break
    return tuple(attempts)


def _decides(found: Reconstruction) -> bool:
    """Whether a dearer attack has little to add: weights of a trained network are seldom explained in full."""
    if found.outcome is Outcome.RECOVERED:
        return True
    return found.outcome is Outcome.PARTIAL and found.held_out_loss is not None and found.held_out_loss < EXPLAINED


def best_of(attempts: tuple[Attempt, ...], came_back: Callable[[Attempt], int] = lambda _: 0) -> Attempt | None:
    """The attempt that shows most: by outcome, then by what it leaves unexplained of the weights it never saw.

    Pictures that nothing confirms (told apart by their edges, or agreed on by several starts) show more than what did
    not converge or was refuted. `came_back`: how many records an attempt gave, where there are some: these come
    first."""

    def rank(attempt: Attempt) -> tuple[int, bool, float]:
        assert attempt.attacked is not None
        found = attempt.attacked.reconstruction
        pictured = bool(found.facts.get("pictures") or found.facts.get("unconfirmed_pictures"))
        place = min(_ORDER.index(found.outcome), _ORDER.index(Outcome.PARTIAL) + 1 if pictured else len(_ORDER))
        return place, not pictured, found.loss if found.held_out_loss is None else found.held_out_loss

    ran = [attempt for attempt in attempts if attempt.attacked is not None]
    counts = [came_back(attempt) for attempt in ran]
    ran = [attempt for attempt, count in zip(ran, counts, strict=True) if count == max(counts)]
    layers = [attempt for attempt in ran if attempt.offer.layer is not None]
    most = max(layers, key=_shown, default=None)  # losses of different layers are not of one kind
    return min((attempt for attempt in ran if attempt not in layers or attempt is most), key=rank, default=None)


def _shown(attempt: Attempt) -> tuple[int, int]:
    """How many samples are confirmed, and how many there are."""
    assert attempt.attacked is not None
    confidence = attempt.attacked.reconstruction.certificate.confidence
    return sum(value >= 0.5 for value in confidence), len(confidence)


def agreeing_starts(attempts: tuple[Attempt, ...], best: Attempt | None) -> int:
    """How many attacks of the best one's method, that one included, ended by themselves as it did."""
    if best is None or best.attacked is None:
        return 0
    outcome = best.attacked.reconstruction.outcome
    return len(
        {
            (attempt.offer.seed, attempt.offer.samples)
            for attempt in attempts
            if attempt.offer.method == best.offer.method
            and attempt.attacked is not None
            and not attempt.attacked.stopped
            and attempt.attacked.reconstruction.outcome is outcome
        }
    )


def further_starts(attempts: tuple[Attempt, ...], samples: int | None) -> tuple[PlannedAttack, ...]:
    """The starts that are missing where an attack fitted its weights and was refuted: that it did not find the data is
    said only of several that agree, and only where n is given."""
    best = best_of(attempts)
    if best is None or best.attacked is None or best.attacked.stopped or samples is None:
        return ()
    found = best.attacked.reconstruction
    if found.outcome is not Outcome.SPURIOUS or found.loss > FITTED or best.offer.layer is not None:
        return ()
    first = 1 + max(attempt.offer.seed for attempt in attempts)
    why = f"Another start: that it did not find the data asks for {SEVERAL} that agree."
    missing = max(0, SEVERAL - agreeing_starts(attempts, best))
    return tuple(replace(best.offer, why=why, seed=first + index) for index in range(missing))


def require_room_for_any(observation: Observation, offers: Sequence[PlannedAttack], settings: AttackSettings) -> None:
    """Refuses, before anything runs, a budget into which none of the attacks fits."""
    refusals = []
    for offer in offers:
        try:
            _prepared(observation, offer, settings)
        except UsageError as refusal:
            refusals.append(refusal)
    if refusals and len(refusals) == len(offers):
        raise refusals[0]


def _prepared(observation: Observation, offer: PlannedAttack, settings: AttackSettings) -> PreparedAttack:
    own = replace(settings, method=offer.method, samples=offer.samples, seed=offer.seed)
    return prepare(offer.seen(observation), own)


def _onlooker(
    offer: PlannedAttack, watch: Watch | None, kept: ProgressPart | None, index: int, of: int
) -> Callable[[Progress], None]:
    def look(progress: Progress) -> None:
        if watch is not None:
            watch(offer, progress)
        if kept is not None:
            kept.note(index, of, offer, progress)

    return look


def _attempt(
    observation: Observation,
    offer: PlannedAttack,
    settings: AttackSettings,
    onlooker: Callable[[Progress], None],
    checkpoint: Path | None,
) -> Attempt:
    began = time.monotonic()
    try:
        with ready_in_time(settings.limits, "an attack that is ready"):
            prepared = _prepared(observation, offer, settings)
        attacked = run(prepared, onlooker, checkpoint, SnapshotKeeper())
    except ExhumeError as problem:  # an attack that cannot run is a line of the report, and no end of the audit
        return Attempt(offer, None, (), time.monotonic() - began, without_folders(str(problem)))
    return Attempt(offer, attacked, attacked.snapshots, time.monotonic() - began)
