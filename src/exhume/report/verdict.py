"""The first sentences of a report: what was shown, and how sure that is."""

from dataclasses import dataclass

from exhume.reconstruction import Outcome
from exhume.report.numbers import percent, plain
from exhume.verdicts import Decision, Findings, Ground, Verdict, decide

NO_ATTACK = "No attack could be run on these weights."


@dataclass(frozen=True)
class VerdictInput:
    """What the sentences speak of, besides what the verdict depends on."""

    findings: Findings
    candidates: int
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


def verdict(case: VerdictInput) -> dict[str, str]:
    decision = decide(case.findings)
    outcome = case.findings.outcome
    return {
        "verdict": decision.verdict.value,
        "title": decision.verdict.title,
        "ground": decision.ground.value,
        "sentence": f"{decision.verdict.title}: {_rest(case, decision)}",
        "confidence": _confidence(case, decision),
        "outcome": "not run" if outcome is None else outcome.value.replace("_", " "),
        "advice": NO_ATTACK if outcome is None else _advice(case, outcome, decision),
    }


def _rest(case: VerdictInput, decision: Decision) -> str:
    """What follows the verdict's title."""
    found = case.findings
    none = f"none of the {found.samples:,} {_training(case, found.samples)}" if found.samples else ""
    match decision.ground:
        case Ground.COUNTED:
            noun = _training(case, found.samples or 0)
            return f"{found.recovered:,} of {found.samples:,} {noun} {_can_be_read(case)}."
        case Ground.CERTIFIED:
            return _certified(case, decision.verdict)
        case Ground.REFUTED if none:
            return (
                f"the attack explained the weights with other data, and {none} came back. A better attack may do more."
            )
        case Ground.REFUTED:
            return (
                "the attack explained the weights that it fitted but not those held out, so what it found is not the "
                "training data. A better attack may do more."
            )
        case Ground.NOT_CONVERGED | Ground.UNCHECKED if case.pictures:
            return (
                f"{case.pictures:,} picture{'' if case.pictures == 1 else 's'} came out of the weights, told apart by "
                "their edges, and nothing confirms them. Look at them."
            )
        case Ground.NOT_CONVERGED:
            return "the attack did not converge, which says nothing in the model's favour."
        case Ground.STOPPED:
            return "the attack was stopped before its end, which says nothing in the model's favour."
        case Ground.ASSUMPTION:
            return f"these attacks cannot judge this training ({'; '.join(found.broken)})."
        case Ground.CONTROL:
            return (
                f"{found.recovered:,} of {found.samples:,} {_training(case, 2)} came back, but so did "
                f"{found.control_recovered:,} of {found.control_samples:,} that were not trained on."
            )
        case Ground.CONTRADICTION:
            return (
                f"{_kept(case)} confirm the candidates, but they are {none}. Are these the records, "
                "prepared as in training? Other data can give the same weights, too."
            )
        case Ground.UNCHECKED:
            return "nothing was held out, so nothing confirms what the attack found."
        case Ground.NOTHING_RAN:
            return "no attack could be run on these weights, which says nothing in the model's favour."


def _certified(case: VerdictInput, verdict: Verdict) -> str:
    if verdict is Verdict.RECOVERED:
        found = _found(case)
        return f"{found} can be read from the weights, as {_kept(case)} confirm."
    if case.units:
        sure = _found(case)
        return f"{sure} can be read from the weights, as {_kept(case)} confirm; there are more in them."
    candidates = f"{case.candidates:,} candidate{'' if case.candidates == 1 else 's'}"
    share = "part" if case.held_out_loss is None else percent(max(0.0, 1 - case.held_out_loss))
    return (
        f"{candidates} explain{'s' if case.candidates == 1 else ''} {share} of the {_kept(case)}, so "
        "part of the training data is exposed."
    )


def _confidence(case: VerdictInput, decision: Decision) -> str:
    unseen = "No weights were held out."
    if case.findings.outcome is None:
        return f"None: {NO_ATTACK.lower()}"
    if case.units:
        unseen = _by_units(case)
    elif case.held_out_loss is not None:
        unseen = (
            f"On {case.held_out_rows:,} {case.held_out} that were not fitted, the candidates miss a share of "
            f"{plain(case.held_out_loss)} (0: all explained, 1: as good as nothing).{_looked_at(case)}"
        )
    control = ""
    if case.findings.control_samples:
        came = case.findings.control_recovered or 0
        control = f" Of {case.findings.control_samples:,} control records that were not trained on, {came:,} came back."
    match decision.verdict, decision.ground:
        case Verdict.INCONCLUSIVE, Ground.NOT_CONVERGED | Ground.UNCHECKED if case.pictures:
            level = "Low: nothing but their looks speaks for these pictures."
        case Verdict.INCONCLUSIVE, _:
            level = "Low: an attack that fails says little of a better one."
        case Verdict.NOT_RECOVERED, _:
            level = "Medium for these attacks, none for others."
        case _, Ground.COUNTED:
            level = f"High: the candidates were compared with the true {_training(case, 2)}."
        case Verdict.RECOVERED, _:
            level = "High for the set as a whole, without any look at the training data."
        case _:
            level = "Medium: which of the candidates are right was not checked."
    return f"{level}{control} {unseen}"


def _advice(case: VerdictInput, outcome: Outcome, decision: Decision) -> str:
    """What to make of the outcome: an attack on one layer is judged by units, not by weights."""
    if not case.units:
        return outcome.advice
    if decision.ground is Ground.COUNTED:
        return "The records themselves show what came back: treat it as exposed."
    if outcome is Outcome.NOT_CONVERGED and case.pictures:
        return "Pictures can be told apart without units that confirm them: look at them before you publish."
    if outcome is Outcome.NOT_CONVERGED:
        return "Units that were kept from the search confirm no sample: this is inconclusive, not safe."
    return "Units that were kept from the search confirm these samples: treat them as exposed."


def _kept(case: VerdictInput) -> str:
    return "units kept from the search" if case.units else f"{case.held_out} that were not fitted"


def _looked_at(case: VerdictInput) -> str:
    return f" What the attack learned of them all the same: {case.looked_at}." if case.looked_at else ""


def _by_units(case: VerdictInput) -> str:
    if not case.held_out_rows:
        return "No units were held out."
    told = f"{case.held_out_rows:,} units of the layer were kept from the attack"
    if case.chance is None:
        return f"{told}; they confirm no sample."
    least = max(case.chance, 1e-300)
    return (
        f"{told}. They are silent where the recovered samples say so; the chance of that for the least sure sample is "
        f"{least:.0e} or less.{_looked_at(case)}"
    )


def _can_be_read(case: VerdictInput) -> str:
    if case.pieces is None:
        return "can be read from the weights"
    if case.whole:
        return f"can be read from the weights in {case.pieces[1]}, which are not told apart by record"
    return f"are recognised by their {case.pieces[1]}, which can be read from the weights"


def _found(case: VerdictInput) -> str:
    if case.pieces is None:
        return f"{case.candidates:,} {_training(case, case.candidates)}"
    return f"{case.candidates:,} {case.pieces[case.candidates != 1]} of {_training(case, 2)}"


def _training(case: VerdictInput, count: int) -> str:
    return f"training {case.noun}{'' if count == 1 else 's'}"
