"""What an attack lets its owner conclude. Four verdicts, and none of them is "no": a failed attack proves nothing.

    recovered          at least 90 % of the records came back; without records to compare with, every candidate
                       passed the certificate of weights that the attack never used
    partly recovered   at least one record came back; without records, some candidates passed the certificate
    not recovered      by these attacks: one of them ran to its end, explained the weights as well as the training data
                       would, and what it found is not the training data
    inconclusive       anything else: no convergence, a budget that ended, training that breaks the attacks'
                       assumption, or evidence that contradicts itself

A record is *recovered* if a candidate, matched one to one, lies closer than 0.1 √d. docs/auditing.md says what would
make each verdict wrong.
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
AS_GOOD_AS_TRUTH = 2.0
"""A fit is complete if its loss is at most so many times the loss of the true records."""


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
    CERTIFIED = "the certificate decided"
    REFUTED = "fitted, but refuted"
    NOT_CONVERGED = "no convergence"
    STOPPED = "stopped before its end"
    ASSUMPTION = "the assumption is broken"
    CONTROL = "control records came back too"
    CONTRADICTION = "certified, but none of the records"
    UNCHECKED = "nothing was held out"
    NOTHING_RAN = "no attack could be run"


@dataclass(frozen=True)
class Findings:
    """What a verdict depends on. Numbers of records are None where there are no records to count with."""

    outcome: Outcome | None
    """None where no attack could be run."""
    held_out: bool = True
    """Whether weights were kept from the attack."""
    stopped: bool = False
    """Whether a budget or a person ended the attack."""
    broken: tuple[str, ...] = ()
    """What breaks the assumption that the weights are combinations of the features, in words."""
    loss: float | None = None
    floor: float | None = None
    """The loss of the true records, where they are known."""
    samples: int | None = None
    recovered: int | None = None
    control_samples: int | None = None
    control_recovered: int | None = None


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    ground: Ground


def decide(found: Findings) -> Decision:
    """
    >>> decide(Findings(Outcome.PARTIAL)).verdict
    <Verdict.PARTLY_RECOVERED: 'partly_recovered'>
    >>> decide(Findings(Outcome.SPURIOUS, broken=("Adam",))).ground
    <Ground.ASSUMPTION: 'the assumption is broken'>
    """
    if found.outcome is None:
        return Decision(Verdict.INCONCLUSIVE, Ground.NOTHING_RAN)
    if found.recovered is not None and found.samples:
        if found.recovered:
            return _counted(found, found.recovered, found.samples)
        if found.outcome in (Outcome.RECOVERED, Outcome.PARTIAL):
            return Decision(Verdict.INCONCLUSIVE, Ground.CONTRADICTION)
        return _failed(found)
    if found.outcome is Outcome.RECOVERED:
        return Decision(Verdict.RECOVERED, Ground.CERTIFIED)
    if found.outcome is Outcome.PARTIAL:
        return Decision(Verdict.PARTLY_RECOVERED, Ground.CERTIFIED)
    return _failed(found)


def _counted(found: Findings, recovered: int, samples: int) -> Decision:
    share = recovered / samples
    if found.control_samples and (found.control_recovered or 0) / found.control_samples >= CONTROL_SHARE * share:
        return Decision(Verdict.INCONCLUSIVE, Ground.CONTROL)
    whole = share >= RECOVERED_SHARE
    return Decision(Verdict.RECOVERED if whole else Verdict.PARTLY_RECOVERED, Ground.COUNTED)


def _failed(found: Findings) -> Decision:
    """Nothing came back. Only an attack that had every chance lets us say so."""
    if not found.held_out:
        return Decision(Verdict.INCONCLUSIVE, Ground.UNCHECKED)
    if found.broken:
        return Decision(Verdict.INCONCLUSIVE, Ground.ASSUMPTION)
    if found.stopped:
        return Decision(Verdict.INCONCLUSIVE, Ground.STOPPED)
    refuted = found.outcome is Outcome.SPURIOUS and (found.loss is None or found.loss <= FITTED)
    as_good = found.floor is not None and found.loss is not None and found.loss <= AS_GOOD_AS_TRUTH * found.floor
    if refuted or as_good:
        return Decision(Verdict.NOT_RECOVERED, Ground.REFUTED)
    return Decision(Verdict.INCONCLUSIVE, Ground.NOT_CONVERGED)


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
