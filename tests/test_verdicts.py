import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.reconstruction import Outcome
from exhume.verdicts import Findings, Ground, Verdict, decide, parse_verdict

OUTCOMES = st.sampled_from(Outcome)


def test_ninety_percent_of_the_records_are_a_recovery_and_one_record_is_a_part() -> None:
    def of(recovered: int) -> Verdict:
        return decide(Findings(Outcome.NOT_CONVERGED, samples=10, recovered=recovered)).verdict

    assert [of(10), of(9), of(8), of(1)] == [Verdict.RECOVERED] * 2 + [Verdict.PARTLY_RECOVERED] * 2


@given(OUTCOMES, st.integers(1, 20), st.integers(0, 20))
def test_control_records_that_come_back_half_as_often_take_the_verdict_away(
    outcome: Outcome, recovered: int, control: int
) -> None:
    decision = decide(Findings(outcome, samples=20, recovered=recovered, control_samples=20, control_recovered=control))
    assert (decision.ground is Ground.CONTROL) == (control >= recovered / 2)


@given(OUTCOMES, st.booleans(), st.sampled_from([(), ("Adam",)]), st.booleans())
def test_nothing_found_is_called_so_only_after_a_fit_that_had_every_chance(
    outcome: Outcome, stopped: bool, broken: tuple[str, ...], held_out: bool
) -> None:
    for counts in ({}, {"samples": 5, "recovered": 0}):
        decision = decide(Findings(outcome, held_out=held_out, stopped=stopped, broken=broken, **counts))
        if decision.verdict is Verdict.NOT_RECOVERED:
            assert outcome is Outcome.SPURIOUS
            assert not stopped
            assert not broken
            assert held_out


@pytest.mark.parametrize(("loss", "verdict"), [(0.019, Verdict.NOT_RECOVERED), (0.021, Verdict.INCONCLUSIVE)])
def test_a_fit_as_good_as_that_of_the_true_records_counts_as_complete(loss: float, verdict: Verdict) -> None:
    found = Findings(Outcome.NOT_CONVERGED, loss=loss, floor=0.01, samples=5, recovered=0)
    assert decide(found).verdict is verdict


@pytest.mark.parametrize(("loss", "verdict"), [(0.009, Verdict.NOT_RECOVERED), (0.2, Verdict.INCONCLUSIVE)])
def test_an_attack_that_unseen_weights_refute_but_that_fitted_little_is_inconclusive(
    loss: float, verdict: Verdict
) -> None:
    assert decide(Findings(Outcome.SPURIOUS, loss=loss)).verdict is verdict


def test_candidates_that_are_certified_but_none_of_the_records_are_inconclusive() -> None:
    for outcome in (Outcome.RECOVERED, Outcome.PARTIAL):
        assert decide(Findings(outcome, samples=5, recovered=0)).ground is Ground.CONTRADICTION


def test_verdicts_are_ordered_by_how_bad_the_news_is() -> None:
    worst = sorted(Verdict, key=lambda verdict: verdict.severity, reverse=True)
    assert worst == [Verdict.RECOVERED, Verdict.PARTLY_RECOVERED, Verdict.INCONCLUSIVE, Verdict.NOT_RECOVERED]
    with pytest.raises(UsageError, match="expected a verdict out of recovered, partly-recovered"):
        parse_verdict("safe")
