"""What an attack lets its owner conclude. Four verdicts, and none of them is "no": a failed attack proves nothing.

    recovered          at least 90 % of the records came back, or every candidate passed the certificate of weights
                       that the attack never used
    partly recovered   at least one record came back, be it up to its norm, or some candidates passed the certificate
    not recovered      by these attacks: several of them ran to their end from starts of their own, each explained the
                       weights it used, unseen weights refuted all of it, and there were enough weights for one of them
                       to have found the data. They did not find the data, and more is not said
    inconclusive       anything else: no convergence, a budget that ended, too few weights, training that breaks the
                       attacks' assumption, control records that came back as well, records so alike that luck explains
                       the count

A record is *recovered* if a candidate, matched one to one, is closer than 0.1 of the record's own norm, and closer than
the nearest control record. docs/auditing.md says what would make each verdict wrong.

**The law.** Records may raise a verdict and never lower it: whatever is counted or measured with them,

    severity(with records) ≥ severity(the same findings without).

What the certificate shows stands by itself, so records that do not agree with it are asked about and do not acquit:
they may be the wrong ones, or prepared otherwise. What nobody could tell stays open: a count of zero is no reason to
call an attack complete. So "not recovered" rests on nothing that records could supply; n, which it asks for, is what
the owner tells. Control records may take back what counting the records has added, and so may the likeness of the
records among themselves; they take back nothing else. `--fail-on` compares severities, so a release gate that stops a
model without records stops it with them.
"""

from dataclasses import dataclass
from enum import Enum

from exhume.errors import UsageError
from exhume.reconstruction import Outcome

RECOVERED_SHARE = 0.9
"""Share of the records from which on the data set as a whole counts as recovered."""
CONTROL_SHARE = 0.5
"""Where control records come back at this share of the training records' rate, recovery is not a sign of training."""
FITTED = 0.01
"""Share of the weights that it used which an attack may leave unexplained and still count as converged."""
LUCK = 0.05
"""Chance from which on a count of records may be luck: they are so alike that any row of their kind is close to one."""
OUTSIDE = 0.1
"""Share of the weights outside of the span of the true features from which on the assumption counts as broken."""
ENOUGH_HELD_OUT = 64
"""Held-out weights from which on the share that they miss is known to a fifth of itself: sqrt(2 / h) is 0.18."""
SEVERAL = 3
"""Starts that have to agree before it is said that an attack did not find the data."""


class Verdict(Enum):
    RECOVERED = "recovered"
    PARTLY_RECOVERED = "partly_recovered"
    NOT_RECOVERED = "not_recovered"
    INCONCLUSIVE = "inconclusive"

    @property
    def title(self) -> str:
        return _TITLES[self]

    @property
    def severity(self) -> int:
        """How bad the news is: what is inconclusive may still turn out worse than what was not recovered."""
        return _SEVERITY[self]


_TITLES = {
    Verdict.RECOVERED: "Recovered",
    Verdict.PARTLY_RECOVERED: "Partly recovered",
    Verdict.NOT_RECOVERED: "Not recovered by these attacks",
    Verdict.INCONCLUSIVE: "Inconclusive",
}
_SEVERITY = {
    Verdict.NOT_RECOVERED: 0,
    Verdict.INCONCLUSIVE: 1,
    Verdict.PARTLY_RECOVERED: 2,
    Verdict.RECOVERED: 3,
}


class Ground(Enum):
    """Why a verdict is what it is: each has a sentence on the page."""

    COUNTED = "records were counted"
    DIRECTIONS = "records came back up to their norm"
    CERTIFIED = "the certificate decided"
    CONTRADICTION = "certified, but none of the records"
    CONTROL = "control records came back too"
    LUCK = "the records are too alike to be counted"
    REFUTED = "several attacks fitted, and all were refuted"
    ASSUMPTION = "the assumption is broken"
    STOPPED = "stopped before its end"
    UNCHECKED = "nothing was held out"
    FEW_HELD_OUT = "too few weights were held out"
    FEW_WEIGHTS = "fewer weights than unknowns, or nobody knows"
    FEW_STARTS = "too few starts agree"
    UNDECIDED = "fitted, and neither confirmed nor refuted"
    NOT_CONVERGED = "no convergence"
    NOTHING_RAN = "no attack could be run"


@dataclass(frozen=True)
class Findings:
    """What a verdict depends on. Numbers of records are None where there are no records to count with."""

    outcome: Outcome | None
    """None where no attack could be run."""
    held_out: int = 0
    """How many weights were kept from the attack and have judged it."""
    stopped: bool = False
    """Whether a budget or a person ended the attack."""
    broken: tuple[str, ...] = ()
    """What breaks the assumption that the weights are combinations of the features, as the owner tells it."""
    loss: float | None = None
    determined: bool | None = None
    """Whether p >= dn for the n that the owner gives; None where it was not given."""
    starts: int = 1
    """How many attacks of the same kind ended like this one, each from a start of its own."""
    floor: float | None = None
    """The share of the weights that the true records leave unexplained, where they are known."""
    samples: int | None = None
    recovered: int | None = None
    directions: int | None = None
    """Records whose direction came back, whatever their norm."""
    luck: float = 0.0
    """How likely rows of the records' kind are as close to as many of them (`metrics.records.chance_of`)."""
    control_samples: int | None = None
    control_recovered: int | None = None
    control_directions: int | None = None


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    ground: Ground


def decide(found: Findings) -> Decision:
    """
    >>> decide(Findings(Outcome.PARTIAL)).verdict
    <Verdict.PARTLY_RECOVERED: 'partly_recovered'>
    >>> decide(Findings(Outcome.SPURIOUS, held_out=9, broken=("Adam",))).ground
    <Ground.ASSUMPTION: 'the assumption is broken'>
    >>> decide(Findings(Outcome.PARTIAL, samples=5, recovered=0)).ground
    <Ground.CONTRADICTION: 'certified, but none of the records'>
    """
    alone = _by_certificate(found)
    counted = _by_records(found)
    if counted is None:
        disputed = found.samples and alone.ground is Ground.CERTIFIED
        return Decision(alone.verdict, Ground.CONTRADICTION) if disputed else alone
    return Decision(max(alone.verdict, counted.verdict, key=lambda verdict: verdict.severity), counted.ground)


def _by_certificate(found: Findings) -> Decision:
    """What the attack shows by itself. Records come in where nothing was found, and only to leave it open."""
    if found.outcome is None:
        return Decision(Verdict.INCONCLUSIVE, Ground.NOTHING_RAN)
    if found.outcome is Outcome.RECOVERED:
        return Decision(Verdict.RECOVERED, Ground.CERTIFIED)
    if found.outcome is Outcome.PARTIAL:
        return Decision(Verdict.PARTLY_RECOVERED, Ground.CERTIFIED)
    open_question = _why_open(found)
    if open_question is not None:
        return Decision(Verdict.INCONCLUSIVE, open_question)
    return Decision(Verdict.NOT_RECOVERED, Ground.REFUTED)


def _why_open(found: Findings) -> Ground | None:
    """What keeps an attack that found nothing from saying so; None where it had every chance."""
    if not found.held_out:
        return Ground.UNCHECKED
    if found.broken or (found.floor is not None and found.floor > OUTSIDE):
        return Ground.ASSUMPTION
    if found.stopped:
        return Ground.STOPPED
    if found.loss is None or found.loss > FITTED:
        return Ground.NOT_CONVERGED
    if found.outcome is not Outcome.SPURIOUS:
        return Ground.UNDECIDED
    if found.held_out < ENOUGH_HELD_OUT:
        return Ground.FEW_HELD_OUT
    if not found.determined:
        return Ground.FEW_WEIGHTS
    return Ground.FEW_STARTS if found.starts < SEVERAL else None


def _by_records(found: Findings) -> Decision | None:
    """What the records show that came back; None where none did."""
    if found.outcome is None or not found.samples:
        return None
    if found.recovered:
        return _counted(found, found.recovered, found.control_recovered or 0, Ground.COUNTED)
    if found.directions:
        return _counted(found, found.directions, found.control_directions or 0, Ground.DIRECTIONS)
    return None


def _counted(found: Findings, recovered: int, control: int, ground: Ground) -> Decision:
    assert found.samples
    share = recovered / found.samples
    if found.control_samples and control / found.control_samples >= CONTROL_SHARE * share:
        return Decision(Verdict.INCONCLUSIVE, Ground.CONTROL)
    if found.luck > LUCK:
        return Decision(Verdict.INCONCLUSIVE, Ground.LUCK)
    whole = share >= RECOVERED_SHARE and ground is Ground.COUNTED
    return Decision(Verdict.RECOVERED if whole else Verdict.PARTLY_RECOVERED, ground)


def parse_verdict(text: str) -> Verdict:
    """
    >>> parse_verdict("partly-recovered")
    <Verdict.PARTLY_RECOVERED: 'partly_recovered'>
    """
    try:
        return Verdict(text.replace("-", "_"))
    except ValueError:
        known = ", ".join(verdict.value.replace("_", "-") for verdict in Verdict)
        raise UsageError(f"expected a verdict out of {known}, found {text!r}") from None
