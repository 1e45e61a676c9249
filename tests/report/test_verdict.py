import re
from dataclasses import replace
from typing import Any

import pytest

from exhume.reconstruction import Outcome
from exhume.report.verdict import OPEN, VerdictInput, verdict
from exhume.verdicts import ENOUGH_HELD_OUT, FITTED, SEVERAL, Findings

CONFIRMED = "A part of the weights that the attack did not use confirms it."
REFUTED = Findings(Outcome.SPURIOUS, held_out=ENOUGH_HELD_OUT, loss=FITTED, determined=True, starts=SEVERAL)
ALL = [
    Findings(outcome, held_out, stopped, broken, 0.0, determined, 3, None if samples is None else 0.5, samples, *counts)
    for outcome in (*Outcome, None)
    for samples, counts in (
        (None, ()), (5, (0, 0)), (5, (0, 4)), (5, (1, 1)), (5, (5, 5)), (5, (2, 2, 5, 1, 1)), (5, (0, 2, 5, 0, 2)),
    )
    for stopped in (False, True)
    for broken in ((), ("Adam",))
    for held_out in (0, 7, 300)
    for determined in (None, False, True)
]  # fmt: skip


def _said(
    findings: Findings, candidates: int = 5, held_out_loss: float | None = 0.03, trusted: int = 5, **more: Any
) -> dict[str, str]:
    return verdict(VerdictInput(findings, candidates, trusted, "image", held_out_loss, 300, **more))


@pytest.mark.parametrize("outcome", Outcome)
def test_where_the_truth_is_known_what_was_recovered_is_counted_whatever_the_attack_says(outcome: Outcome) -> None:
    def sentence(samples: int, recovered: int) -> str:
        return _said(Findings(outcome, samples=samples, recovered=recovered), trusted=1)["sentence"]

    assert sentence(5, 5) == "Recovered: 5 of 5 training images can be read from the weights."
    part = "Recovered" if outcome is Outcome.RECOVERED else "Partly recovered"
    assert sentence(5, 1) == f"{part}: 1 of 5 training images can be read from the weights."
    assert sentence(1, 1) == "Recovered: 1 of 1 training image can be read from the weights."


def test_more_candidates_than_records_that_unseen_weights_confirm_are_told() -> None:
    said = _said(Findings(Outcome.RECOVERED, samples=5, recovered=1), trusted=5)["sentence"]
    assert said.endswith("confirms 4 more candidates that are close to none of these records.")


@pytest.mark.parametrize(
    ("findings", "start"),
    [
        (Findings(Outcome.RECOVERED), f"Recovered: 5 training images can be read from the weights. {CONFIRMED}"),
        (Findings(Outcome.PARTIAL), f"Partly recovered: 5 training images can be read from the weights. {CONFIRMED}"),
        (REFUTED, "Not recovered by these attacks: they did not find the training data in these weights, from 3"),
        (Findings(Outcome.NOT_CONVERGED, held_out=300), f"Inconclusive: {OPEN}. The attack did not converge."),
        (Findings(None), f"Inconclusive: {OPEN}. No attack could be run"),
    ],
)  # fmt: skip
def test_without_the_truth_the_outcome_decides(findings: Findings, start: str) -> None:
    assert _said(findings)["sentence"].startswith(start)


def test_the_headline_has_the_confirmed_candidates_and_names_the_others_apart() -> None:
    said = _said(Findings(Outcome.PARTIAL), candidates=149, trusted=3)["sentence"]
    assert said.startswith("Partly recovered: 3 training images can be read from the weights")
    assert said.endswith("146 more candidates are not confirmed.")
    assert "149" not in said


@pytest.mark.parametrize("held_out", [2, 7])
def test_a_refutation_by_a_handful_of_weights_is_none(held_out: int) -> None:
    said = _said(replace(REFUTED, held_out=held_out))["sentence"]
    assert said.startswith("Inconclusive")
    assert f"{held_out} weights are too few" in said


def test_weights_that_are_too_few_are_told_from_an_n_that_nobody_told() -> None:
    assert "p < dn" in _said(replace(REFUTED, determined=False))["sentence"]
    assert "n was not told (--samples)" in _said(replace(REFUTED, determined=None))["sentence"]


@pytest.mark.parametrize("findings", [REFUTED, replace(REFUTED, samples=8, recovered=0, directions=0)])
def test_a_refuted_attack_says_no_more_than_that_it_did_not_find_the_data(findings: Findings) -> None:
    said = _said(findings)["sentence"]
    assert "did not find" in said
    assert "not the training data" not in said
    assert "other data" not in said


def test_a_norm_that_is_wrong_alone_does_not_make_strangers_of_the_records() -> None:
    said = _said(Findings(Outcome.PARTIAL, samples=20, recovered=0, directions=19), trusted=19)["sentence"]
    assert said == "Partly recovered: 19 of 20 training images can be read from the weights up to their norm."


def test_records_that_contradict_the_certificate_are_asked_about_and_do_not_acquit() -> None:
    said = _said(Findings(Outcome.PARTIAL, samples=5, recovered=0, directions=0))
    assert said["verdict"] == "partly_recovered"
    assert "None of 5 training images that were given is among them." in said["sentence"]
    assert "Are these the records, prepared as in training?" in said["sentence"]


def test_control_records_that_come_back_are_told_with_their_number() -> None:
    found = Findings(Outcome.NOT_CONVERGED, samples=5, recovered=2, control_samples=5, control_recovered=1)
    assert "2 of 5 training images came back, but so did 1 of 5 that were not trained on" in _said(found)["sentence"]
    assert "1 came back" in _said(found)["confidence"]


def test_curable_causes_are_named_before_the_training_is_blamed() -> None:
    found = Findings(Outcome.NOT_CONVERGED, held_out=300, samples=20, recovered=0, floor=0.97)
    said = _said(found, start_known=False)["sentence"]
    order = [said.index(words) for words in ("97 %", "before training were not given", "other records", "as by Adam")]
    assert order == sorted(order)
    assert "--initial" not in _said(found)["sentence"]
    told = _said(replace(found, floor=None, samples=None, recovered=None, broken=("Adam",)), start_known=False)
    assert "assumes another training than this one (Adam), and nothing confirms what it found." in told["sentence"]
    assert "It was not given the weights before training" in told["sentence"]


def test_no_verdict_calls_a_model_safe_and_each_begins_with_its_title() -> None:
    for findings in ALL:
        check(findings)


def check(findings: Findings) -> None:
    told = _said(findings, held_out_loss=0.03 if findings.held_out else None)
    for text in (told["sentence"], told["confidence"]):
        assert not re.search(r"\bsafe\b|\bno\b: ", text, flags=re.IGNORECASE)
        assert "None" not in text.replace("None of", "").replace("None: no attack", "")
    assert told["sentence"].startswith(f"{told['title']}: ")
    assert told["sentence"].endswith(("?", "."))
    yes = told["verdict"] in ("recovered", "partly_recovered")
    assert told["answer"].startswith("Yes" if yes else ("Nobody knows", "Not by these"))
    assert ("own check" in told["answer"]) == (yes and not told["ground"].startswith("records "))
    if told["verdict"] == "inconclusive":
        assert OPEN in told["sentence"]
    if told["verdict"] in ("recovered", "partly_recovered"):
        assert "can be read from the weights" in told["sentence"].partition(". ")[0] + "."


def test_confidence_falls_from_recovered_to_inconclusive() -> None:
    findings = (Findings(Outcome.RECOVERED), Findings(Outcome.PARTIAL), REFUTED, Findings(Outcome.NOT_CONVERGED))
    levels = [_said(found)["confidence"].split()[0].rstrip(":") for found in findings]
    assert levels == ["High", "Medium", "Medium", "Low"]


def test_what_is_open_of_a_candidate_that_is_known_otherwise_is_told() -> None:
    said = _said(Findings(Outcome.PARTIAL), doubts={"sign": 1, "parts": 2})["confidence"]
    assert "1 candidate is known up to the sign. 2 candidates are known in parts, but not which" in said
    assert "known" not in _said(Findings(Outcome.PARTIAL))["confidence"]
