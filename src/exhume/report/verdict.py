"""The first sentences of a report: what was shown, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exhume.reconstruction import DOUBTS, Outcome
from exhume.report.numbers import percent, plain
from exhume.verdicts import OUTSIDE, Decision, Findings, Ground, Verdict, decide

NO_ATTACK = "No attack could be run on these weights."


@dataclass(frozen=True)
class VerdictInput:
    """What the sentences speak of, besides what the verdict depends on."""

    findings: Findings
    candidates: int
    trusted: int
    """How many of the candidates unseen weights confirm."""
    noun: str
    held_out_loss: float | None
    held_out_rows: int
    chance: float | None = None
    """Where units were held out and not weights: the chance of the least sure sample that is called recovered."""
    units: bool = False
    pictures: int = 0
    """Told apart by their edges, with nothing to confirm them."""
    pieces: tuple[str, str] | None = None
    """What the candidates are where they are no inputs: one of them, and several."""
    whole: bool = False
    """Whether an input has several such pieces."""
    held_out: str = "weights"
    """What was held out, in the words of the attack that did it."""
    looked_at: str = ""
    """What the attack learned from it all the same."""
    doubts: Mapping[str, int] = field(default_factory=dict)
    """Candidates that are known but for one thing, by what that is."""
    start_known: bool = True
    """Whether the attack was given the weights before training."""


def verdict(case: VerdictInput) -> dict[str, str]:
    decision = decide(case.findings)
    outcome = case.findings.outcome
    return {
        "verdict": decision.verdict.value,
        "title": decision.verdict.title,
        "ground": decision.ground.value,
        "answer": _answer(case, decision),
        "sentence": f"{decision.verdict.title}: {_rest(case, decision)}",
        "confidence": _confidence(case, decision),
        "outcome": "not run" if outcome is None else outcome.value.replace("_", " "),
        "advice": NO_ATTACK if outcome is None else _advice(case, outcome, decision),
    }


def _answer(case: VerdictInput, decision: Decision) -> str:
    """To the question whether training data can be read from these weights."""
    some = "" if decision.verdict is Verdict.RECOVERED else ", some of it"
    if case.pieces is not None:
        some = f", {case.pieces[1]} of it"
    match decision.ground:
        case Ground.COUNTED:
            return f"Yes{some}."
        case Ground.DIRECTIONS:
            return f"Yes{some}, up to the norm of each {case.noun}."
        case Ground.CERTIFIED:
            return f"Yes{some}, by the attack's own check."
        case Ground.CONTRADICTION:
            return f"Yes{some}, by the attack's own check; the records that were given do not show it."
        case Ground.CONTROL | Ground.LUCK if decision.verdict is not Verdict.INCONCLUSIVE:
            return f"Yes{some}, by the attack's own check; the count of records is no sign of it."
        case Ground.REFUTED:
            return "Not by these attacks."
    return "Nobody knows yet."


UNCONFIRMED = (Ground.ASSUMPTION, Ground.NOT_CONVERGED, Ground.UNDECIDED, Ground.UNCHECKED)
UNUSED = "a part of the weights that the attack did not use"
OPEN = "whether training data can be read from these weights is not settled"


def _rest(case: VerdictInput, decision: Decision) -> str:
    """What follows the verdict's title."""
    found = case.findings
    some = f"of {found.samples:,} {_training(case, found.samples)}" if found.samples else ""
    match decision.ground:
        case Ground.COUNTED:
            return f"{found.recovered:,} {some} {_can_be_read(case)}.{_also_confirmed(case)}"
        case Ground.DIRECTIONS:
            return (
                f"{found.directions:,} {some} can be read from the weights up to {_norm(found.directions)}."
                f"{_also_confirmed(case)}"
            )
        case Ground.CERTIFIED:
            return _certified(case, decision.verdict)
        case Ground.CONTRADICTION:
            return (
                f"{_certified(case, decision.verdict)} None {some} that were given is among them. Are these the "
                "records, prepared as in training? Other data can give the same weights, too."
            )
        case Ground.CONTROL | Ground.LUCK:
            counted = f"{_no_sign(case, decision.ground)}, so the count is no sign of training."
            if decision.verdict is Verdict.INCONCLUSIVE:
                return f"{OPEN}. {counted}"
            return f"{_certified(case, decision.verdict)} Of the records, {counted}"
        case Ground.REFUTED:
            return (
                f"they did not find the training data in these weights, from {found.starts:,} starts. That says "
                "nothing of a better attack."
            )
        case _:
            return f"{OPEN}. {_open(case, decision.ground)}"


def _open(case: VerdictInput, ground: Ground) -> str:
    """Why a question stays open."""
    found = case.findings
    if case.pictures and ground in UNCONFIRMED:
        one = case.pictures == 1
        return (
            f"{case.pictures:,} picture{'' if one else 's'} came out of the weights, told apart by "
            f"{'its' if one else 'their'} edges, and nothing confirms {'it' if one else 'them'}. Look at "
            f"{'it' if one else 'them'}."
        )
    did_not = "The attack did not find the data"
    match ground:
        case Ground.ASSUMPTION:
            return _assumption(case)
        case Ground.STOPPED:
            return f"The attack was stopped before its end.{_no_start(case)}"
        case Ground.UNCHECKED:
            return "Nothing was held out, so nothing confirms what the attack found."
        case Ground.FEW_HELD_OUT:
            return f"{did_not}, and {found.held_out:,} {case.held_out} are too few to judge what it found."
        case Ground.FEW_WEIGHTS:
            if found.determined is None:
                return f"{did_not}. n was not told (--samples), so nobody knows whether it could have (p >= dn)."
            return f"{did_not}; there are fewer weights than unknowns (p < dn)."
        case Ground.FEW_STARTS:
            return f"{did_not}, from {found.starts:,} start{'' if found.starts == 1 else 's'} alone."
        case Ground.NOTHING_RAN:
            return "No attack could be run on these weights."
        case Ground.UNDECIDED:
            return f"{_capital(UNUSED)} neither confirms nor refutes what it found.{_no_start(case)}"
        case _:
            return f"The attack did not converge.{_no_start(case)}"


def _assumption(case: VerdictInput) -> str:
    """What keeps the weights from being combinations of the features: the likely and curable causes first."""
    found = case.findings
    if found.floor is None or found.floor <= OUTSIDE:
        return (
            f"The attack assumes another training than this one ({'; '.join(found.broken)}), and nothing confirms what "
            f"it found.{_no_start(case)}"
        )
    causes = ["other records than these were trained on, or they were prepared otherwise"]
    if not case.start_known:
        causes.insert(0, "the weights before training were not given (--initial), so the start is noise in them")
    causes.append(f"training was such that these attacks cannot judge it ({'; '.join(found.broken) or 'as by Adam'})")
    left = percent(min(found.floor, 1.0))
    return f"{left} of the weights is no combination of these records' features. Either {', or '.join(causes)}."


def _no_start(case: VerdictInput) -> str:
    return "" if case.start_known else " It was not given the weights before training (--initial)."


def _came_back(found: Findings) -> tuple[int, int]:
    """How many records and control records were counted."""
    if found.recovered:
        return found.recovered, found.control_recovered or 0
    return found.directions or 0, found.control_directions or 0


def _no_sign(case: VerdictInput, ground: Ground) -> str:
    found = case.findings
    came, control = _came_back(found)
    some = f"{came:,} of {found.samples:,} {_training(case, found.samples or 0)}"
    if ground is Ground.CONTROL:
        return f"{some} came back, but so did {control:,} of {found.control_samples:,} that were not trained on"
    near = "has a candidate" if came == 1 else "have candidates"
    return f"{some} {near} close by, but the records are so alike that other rows of their kind would come as close"


def _norm(count: int | None) -> str:
    return "its norm" if count == 1 else "their norm"


def _also_confirmed(case: VerdictInput) -> str:
    """Where the certificate says more than the count: candidates that are none of the records given."""
    found = case.findings
    certified = found.outcome in (Outcome.RECOVERED, Outcome.PARTIAL)
    counted = found.recovered or found.directions or 0
    if not certified or case.pieces is not None or case.trusted <= counted:
        return ""
    more = case.trusted - counted
    return (
        f" {_capital(UNUSED)} confirms {more:,} more candidate{'' if more == 1 else 's'} that "
        f"{'is' if more == 1 else 'are'} close to none of these records."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _certified(case: VerdictInput, verdict: Verdict) -> str:
    read = f"{_found(case)} can be read from the weights. {_capital(UNUSED)} confirms it."
    if verdict is Verdict.RECOVERED:
        return read
    if case.units:
        return f"{read} There are more samples in the weights."
    others = case.candidates - case.trusted
    rest = "" if not others else f" {others:,} more candidate{' is' if others == 1 else 's are'} not confirmed."
    return f"{read}{rest}"


def _confidence(case: VerdictInput, decision: Decision) -> str:
    unseen = "No weights were held out."
    if case.findings.outcome is None:
        return f"None: {NO_ATTACK.lower()}"
    if case.units:
        unseen = _by_units(case)
    elif case.held_out_loss is not None:
        unseen = (
            f"{_doubts(case)}On {case.held_out_rows:,} {case.held_out} that were not fitted, the candidates miss a "
            f"share of {plain(case.held_out_loss)} (0: all explained, 1: as good as nothing).{_looked_at(case)}"
        )
    control = ""
    if case.findings.control_samples:
        came = _came_back(case.findings)[1]
        control = f" Of {case.findings.control_samples:,} control records that were not trained on, {came:,} came back."
    match decision.verdict, decision.ground:
        case Verdict.INCONCLUSIVE, ground if case.pictures and ground in UNCONFIRMED:
            level = "Low: nothing but their looks speaks for these pictures."
        case Verdict.INCONCLUSIVE, _:
            level = "Low: an attack that fails says little of a better one."
        case Verdict.NOT_RECOVERED, _:
            level = "Medium for these attacks, none for others."
        case _, Ground.COUNTED | Ground.DIRECTIONS:
            level = f"High: the candidates were compared with the true {_training(case, 2)}."
        case _, Ground.CONTRADICTION | Ground.CONTROL | Ground.LUCK:
            level = "Medium: unseen weights confirm the candidates, and the records do not agree with them."
        case Verdict.RECOVERED, _:
            level = "High for the set as a whole, without any look at the training data."
        case _:
            level = "Medium: unseen weights confirm these candidates, and no records were there to compare them with."
    return f"{level}{control} {unseen}"


def _advice(case: VerdictInput, outcome: Outcome, decision: Decision) -> str:
    """What to make of the outcome: an attack on one layer is judged by units, not by weights."""
    if not case.units:
        return outcome.advice
    if decision.ground in (Ground.COUNTED, Ground.DIRECTIONS):
        return "The records themselves show what came back: treat it as exposed."
    if outcome is Outcome.NOT_CONVERGED and case.pictures:
        return "Pictures can be told apart without units that confirm them: look at them before you publish."
    if outcome is Outcome.NOT_CONVERGED:
        return f"{_capital(UNUSED)} confirms no sample: this is inconclusive, not safe."
    return f"{_capital(UNUSED)} confirms these samples: treat them as exposed."


def _looked_at(case: VerdictInput) -> str:
    return f" What the attack learned of them all the same: {case.looked_at}." if case.looked_at else ""


def _doubts(case: VerdictInput) -> str:
    """What is open of candidates that the weights determine otherwise: one short sentence each."""
    doubts = [
        (f"{count:,} candidate{' is' if count == 1 else 's are'}", DOUBTS[kind]) for kind, count in case.doubts.items()
    ]
    return "".join(f"{number} {what}. " for number, what in doubts)


def _by_units(case: VerdictInput) -> str:
    if not case.held_out_rows:
        return "No units were held out."
    kept = f"{case.held_out_rows:,} units of the layer were kept from the attack"
    if case.chance is None:
        return f"{kept}; they confirm no sample."
    least = max(case.chance, 1e-300)
    return (
        f"{kept}. They are silent where the recovered samples say so; the chance of that for the least sure sample is "
        f"{least:.0e} or less.{_looked_at(case)}"
    )


def _can_be_read(case: VerdictInput) -> str:
    if case.pieces is None:
        return "can be read from the weights"
    if case.whole:
        return f"can be read from the weights in {case.pieces[1]}, which are not told apart by record"
    return f"are recognised by their {case.pieces[1]}, which can be read from the weights"


def _found(case: VerdictInput) -> str:
    if not case.trusted:  # files of the first form keep no confidence per candidate
        return f"part of the {_training(case, 2)}"
    if case.pieces is None:
        return f"{case.trusted:,} {_training(case, case.trusted)}"
    return f"{case.trusted:,} {case.pieces[case.trusted != 1]} of {_training(case, 2)}"


def _training(case: VerdictInput, count: int) -> str:
    return f"training {case.noun}{'' if count == 1 else 's'}"
