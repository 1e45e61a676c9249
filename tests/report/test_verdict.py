import re
from dataclasses import replace

import pytest

from exhume.reconstruction import Outcome
from exhume.report.verdict import VerdictInput, verdict
from exhume.verdicts import Findings

FINDINGS = Findings(Outcome.PARTIAL)
ALL = [
    Findings(outcome, samples=samples, recovered=recovered, stopped=stopped, broken=broken, held_out=held_out)
    for outcome in (*Outcome, None)
    for samples, recovered in ((None, None), (5, 0), (5, 1), (5, 5))
    for stopped in (False, True)
    for broken in ((), ("Adam",))
    for held_out in (False, True)
]


def _said(findings: Findings, candidates: int = 5, held_out_loss: float | None = 0.03) -> dict[str, str]:
    return verdict(VerdictInput(findings, candidates, "image", held_out_loss, 300))


@pytest.mark.parametrize("outcome", Outcome)
def test_where_the_truth_is_known_what_was_recovered_decides_whatever_the_attack_says(outcome: Outcome) -> None:
    def sentence(samples: int, recovered: int) -> str:
        return _said(Findings(outcome, samples=samples, recovered=recovered))["sentence"]

    assert sentence(5, 5) == "Recovered: 5 of 5 training images can be read from the weights."
    assert sentence(5, 1) == "Partly recovered: 1 of 5 training images can be read from the weights."
    assert sentence(1, 1) == "Recovered: 1 of 1 training image can be read from the weights."
    assert sentence(5, 0).startswith(("Inconclusive: ", "Not recovered by these attacks: "))


@pytest.mark.parametrize(
    ("outcome", "start"),
    [
        (Outcome.RECOVERED, "Recovered: 5 training images can be read from the weights, as weights that were not"),
        (Outcome.PARTIAL, "Partly recovered: 5 candidates explain 97 % of the weights that were not fitted"),
        (Outcome.SPURIOUS, "Not recovered by these attacks: the attack explained the weights that it fitted but"),
        (Outcome.NOT_CONVERGED, "Inconclusive: the attack did not converge, which says nothing in the model's favour."),
        (None, "Inconclusive: no attack could be run"),
    ],
)
def test_without_the_truth_the_outcome_decides(outcome: Outcome | None, start: str) -> None:
    assert _said(Findings(outcome))["sentence"].startswith(start)


def test_control_records_that_come_back_are_told_with_their_number() -> None:
    found = Findings(Outcome.PARTIAL, samples=5, recovered=2, control_samples=5, control_recovered=1)
    assert _said(found)["sentence"].startswith("Inconclusive: 2 of 5 training images came back, but so did 1 of 5")
    assert "1 came back" in _said(found)["confidence"]


def test_records_that_contradict_the_certificate_are_asked_about() -> None:
    found = Findings(Outcome.RECOVERED, samples=5, recovered=0)
    assert "Are these the records, prepared as in training?" in _said(found)["sentence"]


@pytest.mark.parametrize("findings", ALL)
def test_no_verdict_calls_a_model_safe_and_each_begins_with_its_title(findings: Findings) -> None:
    told = _said(findings, held_out_loss=0.03 if findings.held_out else None)
    for text in (told["sentence"], told["confidence"]):
        assert not re.search(r"\bsafe\b|\bno\b: ", text, flags=re.IGNORECASE)
    assert told["sentence"].startswith(f"{told['title']}: ")
    assert told["sentence"].endswith((".", "too."))


def test_confidence_falls_from_recovered_to_inconclusive() -> None:
    levels = [
        _said(replace(FINDINGS, outcome=outcome))["confidence"].split()[0].rstrip(":")
        for outcome in (Outcome.RECOVERED, Outcome.PARTIAL, Outcome.SPURIOUS, Outcome.NOT_CONVERGED)
    ]
    assert levels == ["High", "Medium", "Medium", "Low"]
