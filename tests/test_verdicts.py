from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.reconstruction import Outcome
from exhume.verdicts import (
    ENOUGH_HELD_OUT,
    FITTED,
    LUCK,
    OUTSIDE,
    SEVERAL,
    Decision,
    Findings,
    Ground,
    Verdict,
    decide,
    parse_verdict,
)

OUTCOMES = st.sampled_from(Outcome)
SHARES = st.none() | st.floats(0, 2)
WITHOUT_RECORDS = st.fixed_dictionaries(
    {
        "outcome": st.none() | OUTCOMES,
        "held_out": st.sampled_from([0, 2, 7, ENOUGH_HELD_OUT, 10_000]),
        "stopped": st.booleans(),
        "broken": st.sampled_from([(), ("Adam",)]),
        "loss": SHARES,
        "determined": st.none() | st.booleans(),
        "starts": st.integers(1, 5),
    }
)
COUNTS = st.integers(0, 20)
RECORDS = st.fixed_dictionaries(
    {
        "floor": SHARES,
        "recovered": COUNTS,
        "directions": st.none() | COUNTS,
        "luck": st.floats(0, 1),
        "still_determined": st.booleans(),
    }
)
CONTROL = st.none() | st.fixed_dictionaries({"control_recovered": COUNTS, "control_directions": COUNTS})
REFUTED = Findings(
    Outcome.SPURIOUS, held_out=ENOUGH_HELD_OUT, loss=FITTED, determined=True, starts=SEVERAL
)  # the least that lets an attack say that it did not find the data


def both(alone: dict[str, Any], records: dict[str, Any], control: dict[str, Any] | None) -> tuple[Findings, Findings]:
    """Any findings, and the same with 20 records: any count of them, control or none, whatever they measure."""
    measured = {key: value for key, value in records.items() if key != "still_determined"}
    # p >= dn is asked of the larger of the two counts, so records can only take it away
    determined = alone["determined"] and records["still_determined"]
    counts = {} if control is None else {"control_samples": 20, **control}
    return Findings(**alone), Findings(**{**alone, **measured, **counts, "samples": 20, "determined": determined})


@given(WITHOUT_RECORDS, RECORDS, CONTROL)
def test_records_never_make_a_verdict_laxer(
    alone: dict[str, Any], records: dict[str, Any], control: dict[str, Any] | None
) -> None:
    without, found = both(alone, records, control)
    assert decide(found).verdict.severity >= decide(without).verdict.severity


@given(WITHOUT_RECORDS, RECORDS, CONTROL)
def test_control_records_take_back_the_count_and_nothing_else(
    alone: dict[str, Any], records: dict[str, Any], control: dict[str, Any] | None
) -> None:
    without, found = both(alone, records, control)
    counted = both(alone, records, None)[1]
    assert decide(found).verdict in (decide(counted).verdict, decide(without).verdict, Verdict.INCONCLUSIVE)


def test_ninety_percent_of_the_records_are_a_recovery_and_one_record_is_a_part() -> None:
    def of(recovered: int) -> Verdict:
        return decide(Findings(Outcome.NOT_CONVERGED, samples=10, recovered=recovered)).verdict

    assert [of(10), of(9), of(8), of(1)] == [Verdict.RECOVERED] * 2 + [Verdict.PARTLY_RECOVERED] * 2


@given(OUTCOMES, st.integers(1, 20), st.integers(0, 20))
def test_control_records_that_come_back_half_as_often_are_told(outcome: Outcome, recovered: int, control: int) -> None:
    found = Findings(outcome, samples=20, recovered=recovered, control_samples=20, control_recovered=control)
    decision = decide(found)
    assert (decision.ground is Ground.CONTROL) == (control >= recovered / 2)
    if decision.ground is Ground.CONTROL:
        certified = {Outcome.RECOVERED: Verdict.RECOVERED, Outcome.PARTIAL: Verdict.PARTLY_RECOVERED}
        assert decision.verdict is certified.get(outcome, Verdict.INCONCLUSIVE)


@given(OUTCOMES, st.integers(1, 20), st.floats(0, 1))
def test_a_count_that_luck_explains_adds_nothing(outcome: Outcome, recovered: int, luck: float) -> None:
    found = Findings(outcome, samples=20, recovered=recovered, luck=luck)
    decision = decide(found)
    assert (decision.ground is Ground.LUCK) == (luck > LUCK)
    if decision.ground is Ground.LUCK:
        certified = {Outcome.RECOVERED: Verdict.RECOVERED, Outcome.PARTIAL: Verdict.PARTLY_RECOVERED}
        assert decision.verdict is certified.get(outcome, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("findings", "ground"),
    [
        (replace(REFUTED, held_out=0), Ground.UNCHECKED),
        (replace(REFUTED, held_out=7), Ground.FEW_HELD_OUT),
        (replace(REFUTED, held_out=ENOUGH_HELD_OUT - 1), Ground.FEW_HELD_OUT),
        (replace(REFUTED, broken=("Adam",)), Ground.ASSUMPTION),
        (replace(REFUTED, floor=2 * OUTSIDE, samples=5, recovered=0), Ground.ASSUMPTION),
        (replace(REFUTED, stopped=True), Ground.STOPPED),
        (replace(REFUTED, determined=False), Ground.FEW_WEIGHTS),
        (replace(REFUTED, determined=None), Ground.FEW_WEIGHTS),
        (replace(REFUTED, starts=SEVERAL - 1), Ground.FEW_STARTS),
        (replace(REFUTED, loss=2 * FITTED), Ground.NOT_CONVERGED),
        (replace(REFUTED, loss=None), Ground.NOT_CONVERGED),
        (replace(REFUTED, outcome=Outcome.NOT_CONVERGED), Ground.UNDECIDED),
        (Findings(None), Ground.NOTHING_RAN),
    ],
)
def test_that_an_attack_did_not_find_the_data_asks_for_every_one_of_these(findings: Findings, ground: Ground) -> None:
    assert decide(REFUTED) == Decision(Verdict.NOT_RECOVERED, Ground.REFUTED)
    assert decide(findings) == Decision(Verdict.INCONCLUSIVE, ground)


def test_records_that_were_not_found_do_not_complete_an_attack() -> None:
    """An attack that did not converge stays open, however well the true records would have explained the weights."""
    found = Findings(Outcome.NOT_CONVERGED, held_out=500, loss=0.01, floor=0.01, samples=5, recovered=0)
    assert decide(found).verdict is Verdict.INCONCLUSIVE


def test_certified_candidates_stand_although_they_are_none_of_the_records() -> None:
    for outcome, verdict in ((Outcome.RECOVERED, Verdict.RECOVERED), (Outcome.PARTIAL, Verdict.PARTLY_RECOVERED)):
        decision = decide(Findings(outcome, samples=5, recovered=0, directions=0))
        assert decision == Decision(verdict, Ground.CONTRADICTION)


@given(OUTCOMES)
def test_records_that_came_back_at_another_norm_came_back(outcome: Outcome) -> None:
    decision = decide(Findings(outcome, samples=20, recovered=0, directions=19))
    assert decision.ground is Ground.DIRECTIONS
    assert decision.verdict.severity >= Verdict.PARTLY_RECOVERED.severity


def test_verdicts_are_ordered_by_how_bad_the_news_is() -> None:
    worst = sorted(Verdict, key=lambda verdict: verdict.severity, reverse=True)
    assert worst == [Verdict.RECOVERED, Verdict.PARTLY_RECOVERED, Verdict.INCONCLUSIVE, Verdict.NOT_RECOVERED]
    with pytest.raises(UsageError, match="expected a verdict out of recovered, partly-recovered"):
        parse_verdict("safe")
